#include "daemon/lane/op_gauges.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "tests/daemon/lane/lane_rig.h"

namespace tern::daemon::op_gauges_test {
namespace {

// Of three nodes, with ranks 0, 1 and 2 here.
class OpGaugesTest : public ::testing::Test {
 protected:
  static collective::GroupShape shape() {
    collective::GroupShape shape;
    shape.eager_bytes = 0;
    shape.max_ops_in_flight = 32;
    shape.ranks = {{0, 1, 2}, {3}, {4, 5}};
    return shape;
  }
  void submit(std::uint64_t use, std::initializer_list<std::uint32_t> ranks) {
    for (const std::uint32_t rank : ranks) {
      collective::OpId op = collective::kNoSlot;
      ops.on_submit({rank, {7, use}, lane_test::all_reduce_of(4), 0, 500 + use}, op);
    }
  }
  void announced_by(std::uint32_t node, std::uint64_t use) {
    collective::OpId op = collective::kNoSlot;
    EXPECT_TRUE(ops.on_announce(node, {7, use}, lane_test::all_reduce_of(4), op));
  }
  std::vector<WaitingOp> waiting() {
    gauges.publish(ops, mailbox);
    return gauges.waiting();
  }

  const collective::GroupShape own_shape = shape();
  collective::GroupOps ops{shape()};
  collective::Mailbox mailbox{own_shape};
  OpGauges gauges;
};

TEST_F(OpGaugesTest, CountsOpsOfThisNodesRanks) {
  submit(0, {0});
  submit(1, {0, 1});
  announced_by(1, 2);
  gauges.publish(ops, mailbox);
  EXPECT_EQ(gauges.in_flight(), 2u);
  EXPECT_EQ(gauges.counted_completed(), 0u);
}

TEST_F(OpGaugesTest, CountsOpsThatWentWell) {
  collective::GroupShape alone = shape();
  alone.ranks = {{0}};
  collective::GroupOps own(alone);
  lane_test::submit(own, {0, 0}, lane_test::all_reduce_of(4));
  own.release(lane_test::run_until(own, collective::ActionKind::complete).op);
  lane_test::end_op(own, lane_test::submit(own, {0, 1}, lane_test::all_reduce_of(4)));
  gauges.publish(own, mailbox);
  EXPECT_EQ(gauges.counted_completed(), 1u);
  EXPECT_EQ(gauges.in_flight(), 0u);
}

// An op has chunks on several lanes, and the group's figures are sums over them.
TEST_F(OpGaugesTest, OfTwoLanesTheOneWithTheFirstChunkCountsAnOp) {
  std::uint32_t counted = 0;
  std::uint64_t completed = 0;
  for (const std::uint32_t lane : {0u, 1u}) {
    collective::GroupShape half = shape();
    half.ranks = {{0}};
    half.lane = lane;
    half.lanes = 2;
    collective::GroupOps own(half);
    lane_test::submit(own, {0, 2}, lane_test::all_reduce_of(4));
    own.release(lane_test::run_until(own, collective::ActionKind::complete).op);
    // One of a tensor, and two of none.
    for (const collective::OpKey& key : {collective::OpKey{7, 0}, {0, 4}, {0, 6}}) {
      lane_test::submit(own, key, lane_test::all_reduce_of(4));
    }
    gauges.publish(own, mailbox);
    EXPECT_EQ(gauges.in_flight(), 3u);
    counted += gauges.counted_in_flight();
    completed += gauges.counted_completed();
  }
  EXPECT_EQ(counted, 3u);
  EXPECT_EQ(completed, 1u);
}

TEST_F(OpGaugesTest, SaysForWhomAnOpWaits) {
  submit(9, {0, 2});
  announced_by(1, 9);
  const auto rows = waiting();
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].tensor, 7u);
  EXPECT_EQ(rows[0].sequence, 9u);
  EXPECT_EQ(rows[0].kind, static_cast<std::uint64_t>(shm::OpKind::all_reduce));
  EXPECT_EQ(rows[0].since_ns, 509u);
  ASSERT_EQ(rows[0].missing, 3u);
  EXPECT_EQ(rows[0].ranks[0], 1u);
  EXPECT_EQ(rows[0].ranks[1], 4u);
  EXPECT_EQ(rows[0].ranks[2], 5u);
}

TEST_F(OpGaugesTest, AnOpThatNobodyHereHasSubmittedKeepsNobodyHereWaiting) {
  announced_by(1, 0);
  EXPECT_TRUE(waiting().empty());
}

TEST_F(OpGaugesTest, AnOpThatHasStartedOrFailedWaitsForNobody) {
  submit(0, {0, 1, 2});
  announced_by(1, 0);
  EXPECT_EQ(waiting().size(), 1u);
  announced_by(2, 0);
  ops.done(lane_test::run_until(ops, collective::ActionKind::announce));
  EXPECT_TRUE(waiting().empty());
  submit(1, {0});
  EXPECT_EQ(waiting().size(), 1u);
  submit(1, {1, 2});
  EXPECT_TRUE(waiting().empty()) << "it waits for the use that runs, and not for ranks";
  ops.fail_key({7, 1}, {Errc::cancelled, 0, "cancelled"});
  EXPECT_TRUE(waiting().empty());
}

// Wherever they lie in their tables.
TEST_F(OpGaugesTest, OfManyTheOldestAreNamedAndAllAreCounted) {
  for (std::uint64_t use = 0; use < 24; ++use) submit(23 - use, {0});
  collective::Passing recv{false, 1, {3, 1, 8, DType::f32, 10}, 1};
  mailbox.submit(recv);
  const auto rows = waiting();
  ASSERT_EQ(rows.size(), 16u);
  std::set<std::uint64_t> since;
  for (const WaitingOp& row : rows) since.insert(row.since_ns);
  EXPECT_EQ(*since.begin(), 1u);
  EXPECT_EQ(*since.rbegin(), 514u);
  EXPECT_EQ(since.size(), 16u);
  EXPECT_EQ(gauges.in_flight(), 25u);
}

TEST_F(OpGaugesTest, SaysForWhomASendOrARecvWaits) {
  const collective::Envelope sent{0, 3, 7, DType::f32, 10};
  collective::Passing send{true, 0, sent, 600};
  send.kind = static_cast<std::uint16_t>(shm::OpKind::send);
  mailbox.submit(send);
  collective::Passing recv{false, 1, {collective::kAnySource, 1, 8, DType::f32, 10}, 700};
  recv.kind = static_cast<std::uint16_t>(shm::OpKind::recv);
  mailbox.submit(recv);
  mailbox.submit({true, 2, {2, 2, 9, DType::f32, 0}, 800});
  mailbox.submit({false, 2, {2, 2, 9, DType::f32, 0}, 800});
  const auto rows = waiting();
  ASSERT_EQ(rows.size(), 2u) << "what has met its other side does not wait";
  EXPECT_EQ(rows[0].kind, static_cast<std::uint64_t>(shm::OpKind::send));
  EXPECT_EQ(rows[0].sequence, 7u);
  EXPECT_EQ(rows[0].since_ns, 600u);
  ASSERT_EQ(rows[0].missing, 1u);
  EXPECT_EQ(rows[0].ranks[0], 3u);
  EXPECT_EQ(rows[1].kind, static_cast<std::uint64_t>(shm::OpKind::recv));
  EXPECT_EQ(rows[1].missing, 0u) << "of any rank none is missing";
  EXPECT_EQ(gauges.in_flight(), 4u);
}

}  // namespace
}  // namespace tern::daemon::op_gauges_test
