#include "daemon/lane/lane_ops.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <span>

namespace tern::daemon {
namespace lane_ops_test {
namespace {

using collective::OpId;

constexpr OpId kOp = 2;

OpRank rank_of(const plan::Range& input, const plan::Range& output) {
  OpRank rank;
  rank.extents = {input, output};
  return rank;
}

class LaneOpsTest : public ::testing::Test {
 protected:
  LaneOps ops{4, 3, 2};  // slots, local ranks, rows
};

TEST_F(LaneOpsTest, OfAnOpThatNobodyHasSubmittedNoRankIsThere) {
  ASSERT_EQ(ops.ranks(kOp).size(), 3u);
  for (const OpRank& rank : ops.ranks(kOp)) EXPECT_FALSE(rank.present);
  EXPECT_FALSE(ops.is_awaited(kOp));
  EXPECT_EQ(ops.lanes(kOp), 0u);
}

TEST_F(LaneOpsTest, ARankIsAwaitedFromItsSubmissionUntilItIsTold) {
  ops.begin(kOp, {});
  EXPECT_FALSE(ops.is_awaited(kOp));
  ops.join(kOp, 0, {});
  ops.join(kOp, 2, {});
  EXPECT_TRUE(ops.ranks(kOp)[0].present);
  EXPECT_FALSE(ops.ranks(kOp)[1].present);
  ops.told(kOp, 0);
  EXPECT_TRUE(ops.is_awaited(kOp));
  ops.told(kOp, 2);
  EXPECT_FALSE(ops.is_awaited(kOp));
}

TEST_F(LaneOpsTest, KnowsEveryLaneThatARankHasAChunkOn) {
  ops.begin(kOp, {});
  OpRank rank;
  rank.lanes = 0b001;
  ops.join(kOp, 0, rank);
  rank.lanes = 0b100;
  ops.join(kOp, 1, rank);
  EXPECT_EQ(ops.lanes(kOp), 0b101u);
}

TEST_F(LaneOpsTest, StartsOnce) {
  ops.begin(kOp, {});
  ops.start(kOp, 7);
  ops.start(kOp, 9);
  EXPECT_EQ(ops[kOp].started_ns, 7u);
}

TEST_F(LaneOpsTest, CountsWhatGoesToEachReceiver) {
  ops.begin(kOp, {});
  ops.count_sent(kOp, 100, 10, 3);
  ops.count_sent(kOp, 50, 50, 1);
  EXPECT_EQ(ops[kOp].bytes_raw, 350u);
  EXPECT_EQ(ops[kOp].bytes_sent, 80u);
}

TEST_F(LaneOpsTest, AFrameThatCameBeforeTheFirstRankKeepsItsPin) {
  ops.pin(kOp);
  LaneOp begun;
  begun.submitted_ns = 5;
  ops.begin(kOp, begun);
  EXPECT_EQ(ops[kOp].submitted_ns, 5u);
  ops.pin(kOp);
  EXPECT_FALSE(ops.unpin(kOp));
  EXPECT_TRUE(ops.unpin(kOp));
}

TEST_F(LaneOpsTest, NothingOfAnOpIsLeftToTheNextOfItsSlot) {
  ops.begin(kOp, {});
  ops.join(kOp, 1, {});
  ops.start(kOp, 7);
  ops.clear(kOp);
  EXPECT_FALSE(ops.is_awaited(kOp));
  EXPECT_EQ(ops[kOp].started_ns, 0u);
  ops.begin(kOp, {});
  EXPECT_FALSE(ops.ranks(kOp)[1].present);
}

TEST(OpRank, SendsAndReceivesWhatLiesInItsMemory) {
  const std::array ranks = {rank_of({0, 10}, {}), rank_of({10, 10}, {0, 20})};
  EXPECT_EQ(sender_of(ranks, {0, 10}), &ranks[0]);
  EXPECT_EQ(sender_of(ranks, {12, 3}), &ranks[1]);
  EXPECT_EQ(sender_of(ranks, {8, 4}), nullptr) << "a part of it each";
  EXPECT_EQ(receiver_of(ranks, {8, 4}), &ranks[1]);
  EXPECT_EQ(receiver_of(ranks, {18, 4}), nullptr);
}

TEST(OpRank, KnowsWhereAPartOfTheOpLies) {
  std::array<float, 20> values{};
  const Region region{std::as_writable_bytes(std::span(values)).data(), sizeof values};
  OpRank rank = rank_of({100, 10}, {0, 10});
  rank.input = {&region, 40, 40};
  const Operand part = rank.input_of({103, 2}, sizeof(float));
  EXPECT_EQ(part.offset, 40u + 3 * sizeof(float));
  EXPECT_EQ(part.bytes, 2 * sizeof(float));
}

TEST(OpRank, HoldsItsRegionsUntilItIsTold) {
  std::array<std::byte, 64> memory{};
  Region region{memory.data(), memory.size()};
  OpRank sender, receiver;
  sender.input = {&region, 0, 64};
  receiver.output = {&region, 0, 32};
  sender.hold_regions();
  receiver.hold_regions();
  EXPECT_EQ(region.uses, 2u);
  sender.let_regions_go();
  EXPECT_EQ(region.uses, 1u);
  receiver.let_regions_go();
  EXPECT_EQ(region.uses, 0u);
}

}  // namespace
}  // namespace lane_ops_test
}  // namespace tern::daemon
