#include "cuda/device_reporter.h"

#include "tests/client_lib/fixture.h"

namespace tern::cuda {
namespace device_reporter_test {

using tern::testing::Connection;
using tern::testing::FakeDaemon;

class CudaDeviceReporter : public ::testing::Test {
 protected:
  explicit CudaDeviceReporter(bool is_new = true) : daemon_({.devices = is_new}) {}

  // How many reports have come.
  std::size_t heard() {
    tern_group_id id;
    EXPECT_EQ(tern_group_mint(connection_.client, &id), TERN_OK);  // which comes behind them
    return daemon_.request_count(shm::PacketKind::device_report);
  }

  FakeDaemon daemon_;
  Connection connection_{daemon_.path()};
  DeviceUse use_;
  ManualClock clock_;
  DeviceReporter reporter_{connection_.client, 3, use_, clock_};
};

TEST_F(CudaDeviceReporter, TellsWhatIsNewAtOnceAndTheRestInASecond) {
  EXPECT_EQ(reporter_.due_in_ms(), -1);
  reporter_.tell_if_due();
  EXPECT_EQ(heard(), 0u) << "there is nothing";
  use_.pinning_failed("cannot pin");
  EXPECT_EQ(reporter_.due_in_ms(), 0);
  reporter_.tell_if_due();
  EXPECT_EQ(heard(), 1u);
  EXPECT_EQ(daemon_.last_device().device, 3u);
  EXPECT_EQ(daemon_.last_device().pinning_failures, 1u);
  EXPECT_STREQ(daemon_.last_device().pinning_problem, "cannot pin");
  EXPECT_EQ(reporter_.due_in_ms(), -1);
  for (int i = 0; i < 1000; ++i) {
    use_.ended(true);
    reporter_.tell_if_due();
    EXPECT_EQ(reporter_.due_in_ms(), 1000);
  }
  EXPECT_EQ(heard(), 1u);
  clock_.advance_ns(DeviceReporter::kEveryNs - 1);
  EXPECT_EQ(reporter_.due_in_ms(), 1) << "not before its time";
  clock_.advance_ns(1);
  reporter_.tell_if_due();
  EXPECT_EQ(heard(), 2u);
  EXPECT_EQ(daemon_.last_device().operations, 1000u);
}

TEST_F(CudaDeviceReporter, TellsTheRestAtTheEnd) {
  use_.hold({100, 10});
  reporter_.tell_if_due();
  use_.let_go({100, 10});
  reporter_.tell_rest();
  reporter_.tell_rest();
  EXPECT_EQ(heard(), 2u);
  EXPECT_EQ(daemon_.last_device().device_bytes, 0u);
}

class CudaOldDaemon : public CudaDeviceReporter {
 protected:
  CudaOldDaemon() : CudaDeviceReporter(false) {}
};

TEST_F(CudaOldDaemon, IsToldNothingAndIsNoReasonToWakeUp) {
  use_.ended(true);
  reporter_.tell_if_due();
  use_.ended(true);
  EXPECT_EQ(reporter_.due_in_ms(), -1);
  EXPECT_EQ(heard(), 0u);
}

}  // namespace device_reporter_test
}  // namespace tern::cuda
