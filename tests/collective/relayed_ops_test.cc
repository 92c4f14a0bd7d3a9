// Large ops with a root that travel by way of other nodes.

#include <gtest/gtest.h>

#include "collective/op_plan.h"
#include "group_ops_net.h"
#include "plan/plans.h"

namespace tern::collective {
namespace relayed_ops_test {

constexpr OpKey kKey{0, 3};
constexpr std::uint32_t kRoot = 1;
constexpr std::uint64_t kChunks = 40;

NetShape shape_of(std::uint32_t nodes, bool late = false) {
  NetShape shape;
  shape.ranks_of_node.assign(nodes, 1);
  shape.rooted_form = RootedForm::relayed;
  shape.late = late;
  shape.room.receive_slabs = 4 * nodes;
  return shape;
}

void run_on_all(GroupOpsNet& net, const wire::AnnounceBody& body) {
  for (std::uint32_t rank = 0; rank < net.ranks(); ++rank) {
    ASSERT_TRUE(net.submit(rank, kKey, body));
  }
  net.run();
  net.expect_all(kKey, Errc::ok);
  net.expect_clean();
}

TEST(RelayedOps, OfABroadcastTheRootSendsEachChunkOnce) {
  for (std::uint32_t nodes = 3; nodes <= 9; ++nodes) {
    for (const bool late : {false, true}) {
      GroupOpsNet net(shape_of(nodes, late), nodes);
      run_on_all(net, broadcast_of(kChunks * kChunk, kRoot));
      for (std::uint32_t node = 0; node < nodes; ++node) {
        EXPECT_EQ(net.results_to[node], node == kRoot ? 0u : kChunks);
        if (node == kRoot) {
          EXPECT_EQ(net.results_from[node], kChunks);
        } else {
          EXPECT_LE(net.results_from[node], (kChunks / (nodes - 1) + 2) * (nodes - 2));
        }
      }
    }
  }
}

TEST(RelayedOps, OfAReduceTheRootGetsEachChunkOnce) {
  for (std::uint32_t nodes = 3; nodes <= 9; ++nodes) {
    for (const bool late : {false, true}) {
      GroupOpsNet net(shape_of(nodes, late), nodes);
      run_on_all(net, reduce_of(kChunks * kChunk, kRoot));
      EXPECT_EQ(net.contributions, kChunks * (nodes - 1));
      for (std::uint32_t node = 0; node < nodes; ++node) {
        EXPECT_EQ(net.results_to[node], node == kRoot ? kChunks : 0u);
      }
      EXPECT_EQ(net.results_from[kRoot], 0u);
    }
  }
}

TEST(RelayedOps, WhatIsSmallOrBetweenTwoNodesOrOfAnOlderGroupIsDirect) {
  const auto sent_by_root = [](NetShape shape, std::uint64_t chunks) {
    GroupOpsNet net(std::move(shape), 1);
    run_on_all(net, broadcast_of(chunks * kChunk - 1, kRoot));
    return net.results_from[kRoot];
  };
  EXPECT_EQ(sent_by_root(shape_of(4), kChunks), kChunks);
  EXPECT_EQ(sent_by_root(shape_of(4), 1), 3u);
  EXPECT_EQ(sent_by_root(shape_of(2), kChunks), kChunks);
  NetShape older = shape_of(4);
  older.rooted_form = RootedForm::direct;
  EXPECT_EQ(sent_by_root(older, kChunks), 3 * kChunks);
}

// What a recipe owes belongs to one owner's chunks, and compressed values are short already.
TEST(RelayedOps, WhatMayLoseValuesIsDirect) {
  for (const Role role : {Role::gradient, Role::delta}) {
    GroupOpsNet net(shape_of(4), 1);
    wire::AnnounceBody body = reduce_of(kChunks * kChunk, kRoot);
    body.role = static_cast<std::uint8_t>(role);
    run_on_all(net, body);
    EXPECT_EQ(net.results_to[kRoot], 0u) << "the root adds";
  }
}

TEST(RelayedOps, AreVerified) {
  NetShape shape = shape_of(4);
  shape.verify = true;
  GroupOpsNet net(shape, 7);
  run_on_all(net, broadcast_of(kChunks * kChunk, kRoot));
}

// Nothing is sent on that has not come, and nothing is left of an op that fails meanwhile.
TEST(RelayedOps, OneThatFailsWhileItIsSentOnLeavesNothing) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    GroupOpsNet net(shape_of(5, true), seed);
    const auto body = broadcast_of(kChunks * kChunk, kRoot);
    for (std::uint32_t rank = 0; rank < net.ranks(); ++rank) {
      ASSERT_TRUE(net.submit(rank, kKey, body));
    }
    for (std::uint64_t step = 0; step < 60 + 5 * seed; ++step) net.step();
    const std::uint32_t node = static_cast<std::uint32_t>(seed % net.nodes());
    if (const OpId op = net.ops(node).find(kKey); op != kNoSlot) {
      net.ops(node).fail(op, {Errc::cancelled, 0, "cancelled"});
    }
    net.run();
    net.expect_clean();
    const OpKey next{0, 4};
    for (std::uint32_t rank = 0; rank < net.ranks(); ++rank) {
      ASSERT_TRUE(net.submit(rank, next, body));
    }
    net.run();
    net.expect_all(next, Errc::ok);
  }
}

TEST(RelayedOps, AResultThatIsNotForThisNodeBreaksTheProtocol) {
  GroupShape shape;
  shape.node = 2;
  shape.chunk_bytes = kChunkBytes;
  shape.eager_bytes = 0;
  shape.rooted_form = RootedForm::relayed;
  shape.ranks = {{0}, {1}, {2}, {3}};
  GroupOps ops(shape);
  OpId op = kNoSlot;
  const auto body = broadcast_of(kChunks * kChunk, kRoot);
  ASSERT_EQ(ops.on_submit({0, kKey, body, 0, 1}, op), GroupOps::SubmitResult::accepted);
  const Room room{8, 8, 8, 8};
  ASSERT_EQ(do_next(ops, room).kind, ActionKind::announce);
  for (const std::uint32_t node : {0u, 1u, 3u}) {
    ASSERT_TRUE(ops.on_announce(node, kKey, body, op));
  }
  const ChunkMap& chunks = ops.op(op).chunks;
  const std::uint32_t mine = chunks.chunk(2, 0), of_another = chunks.chunk(3, 0);
  EXPECT_FALSE(ops.expect_result(kRoot, kKey, of_another, op)) << "the root sends it to node 3";
  EXPECT_FALSE(ops.expect_result(3, kKey, mine, op)) << "node 3 does not have it";
  EXPECT_TRUE(ops.expect_result(kRoot, kKey, mine, op));
  EXPECT_TRUE(ops.expect_result(3, kKey, of_another, op));
  EXPECT_EQ(do_next(ops, room).kind, ActionKind::none) << "nothing has come that goes on";
  ops.delivering(kRoot, op);
  ops.delivered(op, mine);
  const Action action = do_next(ops, room);
  EXPECT_EQ(action.kind, ActionKind::send_on);
  EXPECT_EQ(action.index, 0u);
}

}  // namespace relayed_ops_test
}  // namespace tern::collective
