// What a library above libtern says of a device.

#include <cstring>
#include <string>

#include "tests/client_lib/fixture.h"

namespace tern::testing {
namespace device_test {

class DeviceTest : public ClientTest {
 protected:
  explicit DeviceTest(bool devices = true) : ClientTest({.devices = devices}) {}

  tern_status report() { return tern_report_device(client, &said); }
  // What the daemon has got as the n-th report.
  shm::DeviceReportPacket heard(std::size_t count = 1) {
    daemon.await_requests(shm::PacketKind::device_report, count);
    return daemon.last_device();
  }

  tern_device_report said = TERN_DEVICE_REPORT_INIT;
};

TEST_F(DeviceTest, TheDaemonHearsEachNumber) {
  said.device = 3;
  said.device_bytes = 1;
  said.pinned_bytes = 2;
  said.pinning_failures = 3;
  said.operations = 4;
  said.failures = 5;
  said.encodes = 6;
  said.encode_ns = 7;
  said.last_encode_ns = 8;
  said.decodes = 9;
  said.decode_ns = 10;
  said.last_decode_ns = 11;
  said.pinning_problem = "cannot pin";
  ASSERT_EQ(report(), TERN_OK) << tern_error_detail();
  const shm::DeviceReportPacket packet = heard();
  EXPECT_EQ(packet.device, 3u);
  const std::uint64_t numbers[] = {
      packet.device_bytes, packet.pinned_bytes, packet.pinning_failures, packet.operations,
      packet.failures,     packet.encodes,      packet.encode_ns,        packet.last_encode_ns,
      packet.decodes,      packet.decode_ns,    packet.last_decode_ns};
  for (std::size_t i = 0; i < std::size(numbers); ++i) EXPECT_EQ(numbers[i], i + 1);
  EXPECT_STREQ(packet.pinning_problem, "cannot pin");
}

TEST_F(DeviceTest, ALongTextIsCutAndEnds) {
  const std::string text(1000, 'x');
  said.pinning_problem = text.c_str();
  ASSERT_EQ(report(), TERN_OK);
  EXPECT_EQ(heard().pinning_problem, text.substr(0, 255));
}

TEST_F(DeviceTest, WhatTheDaemonWouldNotTakeIsRefusedHere) {
  const auto expect_refused = [&](auto change) {
    said = TERN_DEVICE_REPORT_INIT;
    change();
    EXPECT_EQ(report(), TERN_ERR_INVALID_ARGUMENT);
    EXPECT_STRNE(tern_error_detail(), "");
  };
  expect_refused([&] { said.device = 16; });
  expect_refused([&] { said.device_bytes = (std::uint64_t{1} << 48) + 1; });
  expect_refused([&] { said.pinned_bytes = ~std::uint64_t{0}; });
  expect_refused([&] { said.struct_size = 8; });
  EXPECT_EQ(tern_report_device(client, nullptr), TERN_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(tern_report_device(nullptr, &said), TERN_ERR_INVALID_ARGUMENT);
  EXPECT_EQ(daemon.request_count(shm::PacketKind::device_report), 0u);
}

// Nobody reads what is sent: the socket is full at some time, and no call waits.
TEST_F(DeviceTest, ADaemonThatDoesNotReadHoldsNobodyUp) {
  daemon.hold([&] {
    for (int i = 0; i < 10'000; ++i) EXPECT_EQ(report(), TERN_OK);
  });
  EXPECT_LT(daemon.request_count(shm::PacketKind::device_report), 10'000u);
  heard();  // and what had room came
}

TEST_F(DeviceTest, ADaemonThatIsGoneIsSaid) {
  daemon.die();
  EXPECT_EQ(report(), TERN_ERR_DAEMON_LOST);
}

class OldDaemon : public DeviceTest {
 protected:
  OldDaemon() : DeviceTest(false) {}
};

TEST_F(OldDaemon, IsToldNothing) {
  EXPECT_EQ(report(), TERN_ERR_UNSUPPORTED);
  EXPECT_NE(std::strstr(tern_error_detail(), "update it"), nullptr);
  EXPECT_EQ(daemon.request_count(shm::PacketKind::device_report), 0u);
}

}  // namespace device_test
}  // namespace tern::testing
