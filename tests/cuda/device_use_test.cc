#include "cuda/device_use.h"

#include <gtest/gtest.h>

#include <utility>

namespace tern::cuda {
namespace device_use_test {

TEST(CudaDeviceUse, IsWhatIsHeldNowAndWhatWasDoneSoFar) {
  DeviceUse use;
  use.hold({100, 10});
  use.hold({50, 5});
  use.let_go({100, 10});
  use.pinning_failed("cannot pin");
  use.encoded(300);
  use.encoded(100);
  use.decoded(70);
  use.went_raw(2);
  use.decoded_by_processor(3);
  use.ended(true);
  use.ended(false);
  const tern_cuda_stats stats = use.stats();
  EXPECT_EQ(stats.device_bytes, 50u);
  EXPECT_EQ(stats.pinned_bytes, 5u);
  EXPECT_EQ(stats.pinning_failures, 1u);
  EXPECT_EQ(stats.operations, 2u);
  EXPECT_EQ(stats.failures, 1u);
  EXPECT_EQ(stats.raw_fallbacks, 2u);
  EXPECT_EQ(stats.processor_blocks, 3u);
  EXPECT_EQ(stats.encode_ns, 400u);
  EXPECT_EQ(stats.decode_ns, 70u);
  const DeviceUse::Report report = use.report();
  EXPECT_EQ(report.numbers.device_bytes, 50u);
  EXPECT_EQ(report.numbers.pinned_bytes, 5u);
  EXPECT_EQ(report.numbers.pinning_failures, 1u);
  EXPECT_EQ(report.pinning_problem, "cannot pin");
  EXPECT_EQ(report.numbers.operations, 2u);
  EXPECT_EQ(report.numbers.failures, 1u);
  EXPECT_EQ(report.numbers.encodes, 2u);
  EXPECT_EQ(report.numbers.encode_ns, 400u);
  EXPECT_EQ(report.numbers.last_encode_ns, 100u);
  EXPECT_EQ(report.numbers.decodes, 1u);
  EXPECT_EQ(report.numbers.last_decode_ns, 70u);
}

TEST(CudaDeviceUse, WhatTheDriverDoesNotKnowIsNoMeasurement) {
  DeviceUse use;
  use.encoded(300);
  use.encoded(0);
  use.decoded(0);
  EXPECT_EQ(use.report().numbers.encodes, 1u);
  EXPECT_EQ(use.report().numbers.last_encode_ns, 300u);
  EXPECT_EQ(use.report().numbers.decodes, 0u);
}

TEST(CudaDeviceUse, ChangesWithWhatIsHeldAndWithEndsAndFailures) {
  DeviceUse use;
  std::uint64_t before = use.changes();
  const auto changed = [&] { return std::exchange(before, use.changes()) != before; };
  EXPECT_FALSE(changed());
  use.hold({1, 1});
  EXPECT_TRUE(changed());
  use.pinning_failed("");
  EXPECT_TRUE(changed());
  use.ended(true);
  EXPECT_TRUE(changed());
  use.let_go({1, 1});
  EXPECT_TRUE(changed());
  use.encoded(1);
  EXPECT_FALSE(changed()) << "the operation has not ended";
}

}  // namespace device_use_test
}  // namespace tern::cuda
