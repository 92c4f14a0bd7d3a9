#include "daemon/tuning/lane_work.h"

#include <gtest/gtest.h>

#include "base/bump.h"

namespace tern::daemon::lane_work_test {
namespace {

constexpr std::uint64_t kLongEnoughNs = 50'000'000;

class LaneWorkTest : public ::testing::Test {
 protected:
  LaneWorkTest() {
    work.add(first);
    work.add(second);
  }
  // A lane works on so many blocks, each of 1000 bytes in 300 ns, of which 200 are codec.
  static void make(LaneCounters& lane, std::uint64_t blocks) {
    bump(lane.blocks, blocks);
    bump(lane.block_bytes, blocks * 1000);
    bump(lane.busy_ns, blocks * 300);
    bump(lane.codec_ns, blocks * 200);
  }

  LaneCounters first, second;
  LaneWork work;
};

TEST_F(LaneWorkTest, IsThatOfAllLanes) {
  make(first, 10);
  make(second, 6);
  EXPECT_EQ(work.busy_ns(), 16u * 300);
  const auto measured = work.since_last(kLongEnoughNs);
  ASSERT_TRUE(measured);
  EXPECT_EQ(measured->blocks, 16u);
  EXPECT_EQ(measured->wire_bytes, 16'000u);
  EXPECT_EQ(measured->busy_ns, 16 * 300.0);
  EXPECT_EQ(measured->codec_ns, 16 * 200.0);
}

TEST_F(LaneWorkTest, IsToldOnce) {
  make(first, 16);
  ASSERT_TRUE(work.since_last(kLongEnoughNs));
  make(second, 20);
  const auto measured = work.since_last(2 * kLongEnoughNs);
  ASSERT_TRUE(measured);
  EXPECT_EQ(measured->blocks, 20u);
  EXPECT_EQ(work.busy_ns(), 36u * 300) << "that is since the start";
}

TEST_F(LaneWorkTest, OfFewBlocksWaitsForMore) {
  make(first, 15);
  EXPECT_FALSE(work.since_last(kLongEnoughNs));
  make(second, 1);
  const auto measured = work.since_last(2 * kLongEnoughNs);
  ASSERT_TRUE(measured);
  EXPECT_EQ(measured->blocks, 16u);
}

TEST_F(LaneWorkTest, IsNotLookedAtAllTheTime) {
  make(first, 16);
  ASSERT_TRUE(work.since_last(kLongEnoughNs));
  make(first, 16);
  EXPECT_FALSE(work.since_last(2 * kLongEnoughNs - 1));
  EXPECT_TRUE(work.since_last(2 * kLongEnoughNs));
}

}  // namespace
}  // namespace tern::daemon::lane_work_test
