#include "daemon/conductor/device_reports.h"

#include "part_rig.h"

namespace tern::daemon::conductor_test {
namespace {

class DeviceReportsTest : public PartRig {
 protected:
  static shm::DeviceReportPacket of_device(std::uint32_t device) {
    auto packet = shm::make_packet<shm::DeviceReportPacket>(shm::PacketKind::device_report, 7);
    packet.device = device;
    return packet;
  }
  static shm::DeviceReportPacket holding(std::uint32_t device, std::uint64_t bytes) {
    auto packet = of_device(device);
    packet.device_bytes = bytes;
    packet.pinned_bytes = 2 * bytes;
    return packet;
  }
  void expect_held(std::uint64_t bytes) const {
    EXPECT_EQ(counters_->device_bytes, bytes);
    EXPECT_EQ(counters_->device_pinned_bytes, 2 * bytes);
  }

  Client& client_ = greet(connect(3, kAlice));
  Client& other_ = greet(connect(4, kBob));
  DeviceReports devices_{outlets_};
};

TEST_F(DeviceReportsTest, TakeThePlaceOfTheLastOfTheSameDevice) {
  EXPECT_EQ(devices_.take(client_, holding(0, 100)), nullptr);
  EXPECT_EQ(devices_.take(client_, holding(5, 10)), nullptr);
  clock_.advance_ns(kSecond);
  EXPECT_EQ(devices_.take(client_, holding(0, 40)), nullptr);
  ASSERT_EQ(client_.devices.size(), 2u);
  EXPECT_EQ(client_.devices[0].said.device_bytes, 40u);
  EXPECT_EQ(client_.devices[0].heard_ns, clock_.now_ns());
  EXPECT_EQ(client_.devices[5].heard_ns, clock_.now_ns() - kSecond);
  EXPECT_EQ(counters_->device_reports, 3u);
  EXPECT_FALSE(answer_to(7)) << "nobody waits for one";
}

TEST_F(DeviceReportsTest, AreAddedUpForThoseThatAreConnected) {
  devices_.take(client_, holding(0, 100));
  devices_.take(client_, holding(1, 10));
  devices_.take(other_, holding(0, 1000));
  expect_held(1110);
  devices_.take(client_, holding(0, 50));
  expect_held(1060);
  devices_.forget(client_);
  expect_held(1000);
  devices_.forget(client_);
  devices_.forget(other_);
  expect_held(0);
}

TEST_F(DeviceReportsTest, ThatCannotBeAreRefusedAndChangeNothing) {
  devices_.take(client_, holding(0, 100));
  auto endless = holding(0, 1);
  std::memset(endless.pinning_problem, 'x', sizeof endless.pinning_problem);
  auto pinned = of_device(0);
  pinned.pinned_bytes = ~std::uint64_t{0};
  for (const auto& wrong :
       {holding(16, 1), holding(~0u, 1), holding(0, shm::kMaxReportedBytes + 1), pinned, endless}) {
    EXPECT_NE(devices_.take(client_, wrong), nullptr);
  }
  EXPECT_EQ(client_.devices.size(), 1u);
  expect_held(100);
  EXPECT_EQ(counters_->device_reports, 1u);
}

TEST_F(DeviceReportsTest, OfAllDevicesCannotBeMoreThanACounterHolds) {
  auto most = of_device(0);
  most.device_bytes = most.pinned_bytes = shm::kMaxReportedBytes;
  std::uint64_t sum = 0;
  for (most.device = 0; most.device < shm::kMaxDevices; ++most.device) {
    EXPECT_EQ(devices_.take(client_, most), nullptr);
    sum += shm::kMaxReportedBytes;
  }
  EXPECT_EQ(counters_->device_bytes, sum);
  EXPECT_EQ(client_.devices.size(), shm::kMaxDevices);
}

// However often, and whatever else it says.
TEST_F(DeviceReportsTest, AClientThatCouldNotPinCountsOnce) {
  auto packet = of_device(0);
  for (packet.pinning_failures = 0; packet.pinning_failures < 100; ++packet.pinning_failures) {
    packet.device = static_cast<std::uint32_t>(packet.pinning_failures % 16);
    devices_.take(client_, packet);
    devices_.take(client_, of_device(packet.device));  // as one that begins anew
  }
  EXPECT_EQ(counters_->clients_not_pinned, 1u);
  devices_.take(other_, packet);
  EXPECT_EQ(counters_->clients_not_pinned, 2u);
}

}  // namespace
}  // namespace tern::daemon::conductor_test
