#include <gtest/gtest.h>

#include "group_ops_net.h"
#include "plan/plans.h"

namespace tern::collective {
namespace group_ops_test {

constexpr OpKey kX{7, 0};
constexpr OpKey kY{8, 0};

NetShape three_nodes() {
  NetShape shape;
  shape.ranks_of_node = {1, 1, 1};
  return shape;
}

NetShape minimal(std::uint32_t nodes) {
  NetShape shape;
  shape.ranks_of_node.assign(nodes, 1);
  shape.room = {1, nodes > 1 ? nodes - 1 : 1, 1, 1};
  return shape;
}

TEST(GroupOps, AllReduceOfManyChunksCompletesOnAllRanks) {
  for (std::uint32_t nodes = 1; nodes <= 16; ++nodes) {
    NetShape shape;
    shape.ranks_of_node.assign(nodes, 1);
    GroupOpsNet net(shape, nodes);
    for (std::uint32_t rank = 0; rank < nodes; ++rank)
      net.submit(rank, kX, all_reduce_of(kChunk * 40 + 3));
    net.run();
    net.expect_all(kX, Errc::ok);
    net.expect_clean();
    EXPECT_EQ(net.ops(0).counts().completed, 1u);
  }
}

TEST(GroupOps, MinimalRoomIsEnough) {
  for (std::uint32_t nodes = 1; nodes <= 16; ++nodes) {
    GroupOpsNet net(minimal(nodes), 100 + nodes);
    for (std::uint32_t rank = 0; rank < nodes; ++rank) {
      net.submit(rank, kX, all_reduce_of(kChunk * 20));
      net.submit(rank, kY, all_reduce_of(kChunk * 9), 3);
    }
    net.run();
    net.expect_all(kX, Errc::ok);
    net.expect_all(kY, Errc::ok);
    net.expect_clean();
  }
}

// docs/architecture.md, "Why grants": A and B submit X then Y; C submits Y, waits for it, and only
// then submits X.
// With room for one chunk an owner that reserved it for X as soon as it had X itself would never
// get to Y.
TEST(GroupOps, AnOpThatOneRankHasNotSubmittedDoesNotBlockTheNext) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    NetShape shape = minimal(3);
    shape.active_chunks = 1;
    GroupOpsNet net(shape, seed);
    for (const std::uint32_t rank : {0u, 1u}) {
      net.submit(rank, kX, all_reduce_of(kChunk * 6));
      net.submit(rank, kY, all_reduce_of(kChunk * 6));
    }
    net.submit(2, kY, all_reduce_of(kChunk * 6));
    net.run();
    net.expect_all(kY, Errc::ok);
    EXPECT_FALSE(net.done(0, kX));
    net.submit(2, kX, all_reduce_of(kChunk * 6));
    net.run();
    net.expect_all(kX, Errc::ok);
    net.expect_clean();
  }
}

TEST(GroupOps, ANodeAnnouncesWhenItsLastRankHasSubmitted) {
  NetShape shape;
  shape.ranks_of_node = {2, 3};
  GroupOpsNet net(shape, 1);
  for (std::uint32_t rank = 0; rank < 4; ++rank) net.submit(rank, kX, all_reduce_of(100));
  net.run();
  EXPECT_FALSE(net.done(0, kX));
  std::uint32_t missing[8] = {};
  ASSERT_EQ(net.ops(1).missing_ranks(net.ops(1).find(kX), missing), 1u);
  EXPECT_EQ(missing[0], 4u);
  // Node 0 knows only that node 1 has not spoken, until that says which of its ranks have come.
  EXPECT_EQ(net.ops(0).missing_ranks(net.ops(0).find(kX), missing), 3u);
  net.ops(1).tell_late(net.now_ns + 9, 10);
  net.run();
  EXPECT_EQ(net.ops(0).missing_ranks(net.ops(0).find(kX), missing), 3u) << "not before its time";
  net.ops(1).tell_late(net.now_ns + 10, 10);
  net.run();
  ASSERT_EQ(net.ops(0).missing_ranks(net.ops(0).find(kX), missing), 1u);
  EXPECT_EQ(missing[0], 4u);
  // What is known is not said again.
  const std::uint64_t moved = net.frames_moved;
  net.ops(1).tell_late(net.now_ns + 100, 10);
  net.run();
  EXPECT_EQ(net.frames_moved, moved);
  net.submit(4, kX, all_reduce_of(100));
  net.run();
  net.expect_all(kX, Errc::ok);
  net.expect_clean();
}

TEST(GroupOps, EagerOpsBroadcastsAndBarriersComplete) {
  for (const std::uint64_t eager_bytes : {0u, 128u, 4096u}) {
    NetShape shape;
    shape.ranks_of_node = {2, 1, 1, 2};
    shape.eager_bytes = eager_bytes;
    GroupOpsNet net(shape, eager_bytes);
    for (std::uint32_t rank = 0; rank < net.ranks(); ++rank) {
      net.submit(rank, {0, 0}, barrier());
      net.submit(rank, {0, 1}, broadcast_of(kChunk * 10 + 1, 5));
      net.submit(rank, {0, 2}, all_reduce_of(16));
      net.submit(rank, {0, 3}, broadcast_of(0, 1));
      net.submit(rank, {0, 4}, all_reduce_of(0));
    }
    net.run();
    for (std::uint64_t i = 0; i < 5; ++i) net.expect_all({0, i}, Errc::ok);
    net.expect_clean();
  }
}

TEST(GroupOps, AnEagerOpTakesTwoLegsWhenOneNodeAsks) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    NetShape shape;
    shape.ranks_of_node = {2, 1, 1};
    shape.eager_bytes = 4096;
    shape.declining = std::uint64_t{1} << seed % 3;
    GroupOpsNet net(shape, seed);
    for (std::uint32_t rank = 0; rank < net.ranks(); ++rank) {
      net.submit(rank, {0, 0}, all_reduce_of(100));
      net.submit(rank, {0, 1}, all_reduce_of(0));
      net.submit(rank, {0, 2}, broadcast_of(16, 3));
    }
    net.run();
    for (std::uint64_t i = 0; i < 3; ++i) net.expect_all({0, i}, Errc::ok);
    EXPECT_GT(net.contributions, 0u) << seed;
    net.expect_clean();
  }
}

// Of what moves the first that is heard of it may be a result: the announcement of the node that
// declines comes over another link.
TEST(GroupOps, AnEagerBroadcastTakesItsLegWhenOneNodeAsks) {
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    NetShape shape;
    shape.ranks_of_node = {2, 1, 1};
    shape.eager_bytes = 4096;
    shape.declining = std::uint64_t{1} << seed % 3;
    GroupOpsNet net(shape, seed);
    for (std::uint32_t rank = 0; rank < net.ranks(); ++rank) {
      for (std::uint32_t root = 0; root < 3; ++root)
        net.submit(rank, {0, root}, broadcast_of(16, root));
    }
    net.run();
    for (std::uint64_t i = 0; i < 3; ++i) net.expect_all({0, i}, Errc::ok);
    net.expect_clean();
  }
}

TEST(GroupOps, AResultOfAnEagerOpSaysThatANodeDeclines) {
  GroupShape shape;
  shape.chunk_bytes = kChunkBytes;
  shape.eager_bytes = 4096;
  shape.ranks = {{0}, {1}, {2}};
  for (const bool may_lose : {true, false}) {
    GroupOps ops(shape);
    OpId op = kNoSlot;
    wire::AnnounceBody body = broadcast_of(4, 1);
    if (!may_lose) {
      body.kind = plan::kScatter.number;
      body.count = 3;
    }
    ops.on_submit({0, kX, body, 0, 1}, op);
    EXPECT_FALSE(ops.expect_result(1, kX, 0, op)) << "of an op that this node has not announced";
    ASSERT_EQ(do_next(ops, {8, 8, 8, 8}).kind, ActionKind::announce);
    EXPECT_EQ(ops.expect_result(1, kX, 0, op), may_lose);
    EXPECT_EQ(ops.op(ops.find(kX)).is_eager(), !may_lose);
  }
}

TEST(GroupOps, EagerOpsSendNoContributions) {
  NetShape shape;
  shape.ranks_of_node = {1, 1};
  shape.eager_bytes = 4096;
  GroupOpsNet net(shape, 1);
  for (std::uint32_t rank = 0; rank < net.ranks(); ++rank) net.submit(rank, kX, all_reduce_of(100));
  net.run();
  net.expect_all(kX, Errc::ok);
  EXPECT_EQ(net.contributions, 0u);
}

// Each owner hears its chunk with the announcements: nobody grants, and nobody contributes later.
TEST(GroupOps, ChunksThatAreAnnouncedTakeNoGrantsAndNoContributions) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    NetShape shape;
    shape.ranks_of_node = {2, 1, 1};
    shape.eager_bytes = kChunkBytes;
    shape.eager_form = EagerForm::chunks;
    shape.late = seed % 2 == 1;
    shape.verify = seed % 3 == 0;
    shape.room = {1, 0, 1, 1};
    GroupOpsNet net(shape, seed);
    for (std::uint32_t rank = 0; rank < net.ranks(); ++rank) {
      net.submit(rank, {0, 0}, all_reduce_of(kChunk * 3));
      net.submit(rank, {0, 1}, all_reduce_of(kChunk * 2 + 1));
      net.submit(rank, {0, 2}, all_reduce_of(kChunk * 2));  // one node owns nothing
      net.submit(rank, {0, 3}, all_reduce_of(kChunk + 1));
    }
    net.run();
    for (std::uint64_t i = 0; i < 4; ++i) net.expect_all({0, i}, Errc::ok);
    EXPECT_EQ(net.contributions, 0u) << seed;
    net.expect_clean();
  }
}

TEST(GroupOps, WhatIsAnnouncedByChunksIsNotGrantedOrContributed) {
  GroupShape shape;
  shape.chunk_bytes = shape.eager_bytes = kChunkBytes;
  shape.eager_form = EagerForm::chunks;
  shape.ranks = {{0}, {1}};
  GroupOps ops(shape);
  OpId op = kNoSlot;
  wire::AnnounceBody body = all_reduce_of(kChunk * 2);
  ops.on_submit({0, kX, body, 0, 1}, op);
  ASSERT_EQ(do_next(ops, {8, 8, 8, 8}).kind, ActionKind::announce);
  const ChunkMap& chunks = ops.op(op).chunks;
  EXPECT_FALSE(ops.on_grant(1, kX, chunks.chunk(1, 0), 1));
  body.flags |= wire::kAnnounceBlock;
  body.eager_bytes = wire::kBlockHeaderBytes;
  ASSERT_TRUE(ops.on_announce(1, kX, body, op));
  ChunkId chunk = kNoSlot;
  EXPECT_FALSE(ops.expect_contribution(1, kX, chunks.chunk(0, 0), chunk));
  const ActionKind expected[] = {ActionKind::grant, ActionKind::begin_add, ActionKind::finish};
  for (const ActionKind kind : expected) EXPECT_EQ(do_next(ops, {1, 0, 0, 1}).kind, kind);
  EXPECT_FALSE(ops.expect_contribution(1, kX, chunks.chunk(0, 0), chunk));
}

TEST(EagerLimit, IsOnWhatANodeSendsInAllButLeavesAFewPackets) {
  EXPECT_EQ(eager_limit(64 << 10, 1), 64u << 10);
  EXPECT_EQ(eager_limit(64 << 10, 2), 64u << 10);
  EXPECT_EQ(eager_limit(64 << 10, 5), 16u << 10);
  EXPECT_EQ(eager_limit(64 << 10, 64), 8u << 10);
  EXPECT_EQ(eager_limit(4 << 10, 5), 4u << 10);
  EXPECT_EQ(eager_limit(0, 2), 0u);
  EXPECT_EQ(eager_limit(0, 9), 0u);
}

// A node whose op has started, with grants of every other owner.
TEST(GroupOps, GrantsFirstThenContributesRoundTheOwnersFromTheNodeBefore) {
  GroupShape shape;
  shape.node = 1;
  shape.chunk_bytes = kChunkBytes;
  shape.eager_bytes = 0;
  shape.ranks = {{0}, {1}, {2}};
  GroupOps ops(shape);
  OpId op = kNoSlot;
  const auto body = all_reduce_of(kChunk * 6);
  ops.on_submit({0, kX, body, 0, 1}, op);
  const Room room{8, 8, 8, 8};
  ASSERT_EQ(do_next(ops, room).kind, ActionKind::announce);
  for (const std::uint32_t node : {0u, 2u}) ASSERT_TRUE(ops.on_announce(node, kX, body, op));
  for (const std::uint32_t node : {0u, 2u}) {
    ASSERT_TRUE(ops.on_grant(node, kX, ops.op(op).chunks.chunk(node, 0), 2));
  }
  std::vector<std::pair<std::uint32_t, std::uint32_t>> contributions;
  bool granted = false;
  for (Action action = do_next(ops, room); action.kind != ActionKind::none;
       action = do_next(ops, room)) {
    granted = granted || action.kind == ActionKind::grant;
    if (action.kind != ActionKind::contribute) continue;
    EXPECT_TRUE(granted) << "a grant behind a contribution is late";
    contributions.emplace_back(action.node, action.index);
  }
  using Pairs = std::vector<std::pair<std::uint32_t, std::uint32_t>>;
  EXPECT_EQ(contributions, (Pairs{{0, 0}, {2, 0}, {0, 1}, {2, 1}}));
}

TEST(GroupOps, RawContributionsWaitForResultsAndCompressedOnesDoNot) {
  for (const bool compressed : {false, true}) {
    GroupShape shape;
    shape.chunk_bytes = kChunkBytes;
    shape.eager_bytes = 0;
    shape.contribution_window = 2;
    shape.ranks = {{0}, {1}, {2}};
    GroupOps ops(shape);
    OpId op = kNoSlot;
    const auto body = all_reduce_of(kChunk * 12);
    ops.on_submit({0, kX, body, 0, 1}, op);
    if (compressed) ops.compress(op);
    const Room room{8, 8, 8, 8};
    for (const std::uint32_t node : {1u, 2u}) ASSERT_TRUE(ops.on_announce(node, kX, body, op));
    ASSERT_EQ(do_next(ops, room).kind, ActionKind::announce);
    ASSERT_TRUE(ops.on_grant(1, kX, ops.op(op).chunks.chunk(1, 0), 4));
    const auto contributions = [&] {
      std::uint32_t count = 0;
      for (Action action = do_next(ops, room); action.kind != ActionKind::none;
           action = do_next(ops, room)) {
        count += action.kind == ActionKind::contribute ? 1 : 0;
      }
      return count;
    };
    EXPECT_EQ(contributions(), compressed ? 4u : 2u);
    ops.delivering(1, op);
    ops.delivered(op, 0);
    EXPECT_EQ(contributions(), compressed ? 0u : 1u);
  }
}

TEST(ContributionWindow, IsOnWhatANodeSendsInAll) {
  EXPECT_EQ(contribution_window(256 << 10, 2), 0xffffffffu);
  EXPECT_EQ(contribution_window(256 << 10, 3), 4u);
  EXPECT_EQ(contribution_window(256 << 10, 64), 2u);
  EXPECT_EQ(contribution_window(64 << 10, 5), 8u);
}

TEST(GroupOps, UsesOfOneTensorRunInTheirOrder) {
  GroupOpsNet net(three_nodes(), 5);
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    for (std::uint64_t use = 0; use < 4; ++use) net.submit(rank, {7, use}, all_reduce_of(64));
  }
  std::uint64_t completed = 0;
  while (net.step()) {
    for (std::uint64_t use = 0; use < 4; ++use) {
      if (net.done(0, {7, use}) && use >= completed) {
        EXPECT_EQ(use, completed);
        completed = use + 1;
      }
    }
  }
  EXPECT_EQ(completed, 4u);
  net.expect_clean();
}

TEST(GroupOps, VerifyComparesBeforeCompleting) {
  for (const std::uint64_t eager_bytes : {0u, 4096u}) {
    NetShape shape;
    shape.ranks_of_node = {2, 1, 1};
    shape.verify = true;
    shape.eager_bytes = eager_bytes;
    GroupOpsNet net(shape, 3);
    for (std::uint32_t rank = 0; rank < net.ranks(); ++rank) {
      net.submit(rank, kX, all_reduce_of(200));
      net.submit(rank, {0, 0}, barrier());
    }
    net.run();
    net.expect_all(kX, Errc::ok);
    net.expect_all({0, 0}, Errc::ok);
    net.expect_clean();
  }
}

TEST(GroupOps, HigherPriorityIsGrantedFirst) {
  NetShape shape = minimal(2);
  GroupOpsNet net(shape, 1);
  net.hold_frames = true;
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    net.submit(rank, kX, all_reduce_of(kChunk * 20));
    net.submit(rank, kY, all_reduce_of(kChunk * 20), 9);
  }
  net.run();
  net.hold_frames = false;
  while (!net.done(0, kX) && !net.done(0, kY)) ASSERT_TRUE(net.step());
  EXPECT_TRUE(net.done(0, kY));
  net.run();
  net.expect_clean();
}

TEST(GroupOps, MoreThanMaxOpsIsRefusedAndRoomComesBack) {
  NetShape shape = three_nodes();
  shape.max_ops = 2;
  GroupOpsNet net(shape, 1);
  EXPECT_TRUE(net.submit(0, {0, 0}, all_reduce_of(4)));
  EXPECT_TRUE(net.submit(0, {0, 1}, all_reduce_of(4)));
  EXPECT_FALSE(net.submit(0, {0, 2}, all_reduce_of(4)));
  for (const std::uint32_t rank : {1u, 2u}) net.submit(rank, {0, 0}, all_reduce_of(4));
  net.run();
  EXPECT_TRUE(net.submit(0, {0, 2}, all_reduce_of(4)));
}

TEST(GroupOps, ASubmissionTwiceIsADuplicate) {
  GroupOpsNet net(three_nodes(), 1);
  net.submit(0, kX, all_reduce_of(4));
  OpId op = kNoSlot;
  EXPECT_EQ(net.ops(0).on_submit({0, kX, all_reduce_of(4), 0, 1}, op),
            GroupOps::SubmitResult::duplicate);
  for (const std::uint32_t rank : {1u, 2u}) net.submit(rank, kX, all_reduce_of(4));
  net.run();
  EXPECT_EQ(net.ops(0).on_submit({0, kX, all_reduce_of(4), 0, 1}, op),
            GroupOps::SubmitResult::duplicate);
}

}  // namespace group_ops_test
}  // namespace tern::collective
