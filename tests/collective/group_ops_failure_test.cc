#include <gtest/gtest.h>

#include "group_ops_net.h"

namespace tern::collective {
namespace group_ops_failure_test {

constexpr OpKey kX{7, 0};

NetShape three_nodes() {
  NetShape shape;
  shape.ranks_of_node = {1, 1, 1};
  return shape;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(GroupOpsFailure, MismatchSaysWhichRankSaidWhat) {
  const auto plain = all_reduce_of(100);
  std::vector<std::pair<wire::AnnounceBody, std::string>> others;
  others.emplace_back(all_reduce_of(101), "101");
  others.emplace_back(all_reduce_of(100, DType::i32), "i32");
  others.emplace_back(all_reduce_of(100, DType::f32, Reduction::max), "max");
  others.emplace_back(plain, "gradient");
  others.back().first.role = static_cast<std::uint8_t>(Role::gradient);
  others.emplace_back(plain, "gen 3");
  others.back().first.generation = 3;
  others.emplace_back(broadcast_of(100, 1), "broadcast");
  for (const auto& [body, word] : others) {
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
      GroupOpsNet net(three_nodes(), seed);
      net.submit(0, kX, plain);
      net.submit(1, kX, plain);
      net.submit(2, kX, body);
      net.run();
      net.expect_all(kX, Errc::mismatch);
      for (std::uint32_t rank = 0; rank < 3; ++rank) {
        const std::string text = net.outcome(rank, kX).text;
        EXPECT_TRUE(contains(text, "rank 2 says")) << text;
        EXPECT_TRUE(contains(text, "rank 0 says") || contains(text, "rank 1 says")) << text;
        EXPECT_TRUE(contains(text, word)) << text;
      }
      net.expect_clean();
    }
  }
}

TEST(GroupOpsFailure, MismatchBetweenRanksOfOneNode) {
  NetShape shape;
  shape.ranks_of_node = {2, 1};
  GroupOpsNet net(shape, 1);
  net.submit(0, kX, all_reduce_of(100));
  net.submit(1, kX, all_reduce_of(99));
  net.submit(2, kX, all_reduce_of(100));
  net.run();
  net.expect_all(kX, Errc::mismatch);
  net.expect_clean();
}

TEST(GroupOpsFailure, CancelFailsOnAllRanksAlsoOnThoseThatSubmitLater) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    GroupOpsNet net(three_nodes(), seed);
    net.submit(0, kX, all_reduce_of(300));
    net.submit(1, kX, all_reduce_of(300));
    net.run();
    net.ops(0).fail(net.ops(0).find(kX), {Errc::cancelled, 0, "cancelled by rank 0"});
    net.run();
    EXPECT_EQ(net.outcome(1, kX).code, Errc::cancelled);
    net.submit(2, kX, all_reduce_of(300));
    net.run();
    net.expect_all(kX, Errc::cancelled);
    EXPECT_EQ(net.outcome(2, kX).about, 0u);
    net.expect_clean();
    // The next use is not hurt.
    for (std::uint32_t rank = 0; rank < 3; ++rank) net.submit(rank, {7, 1}, all_reduce_of(300));
    net.run();
    net.expect_all({7, 1}, Errc::ok);
    net.expect_clean();
  }
}

TEST(GroupOpsFailure, CancelInTheMiddleOfTheDataLegs) {
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    NetShape shape;
    shape.ranks_of_node = {2, 1, 1};
    shape.late = seed % 2 == 1;
    GroupOpsNet net(shape, seed);
    for (std::uint32_t rank = 0; rank < net.ranks(); ++rank)
      net.submit(rank, kX, all_reduce_of(kChunk * 30));
    for (std::uint64_t i = 0; i < seed && net.step(); ++i) {
    }
    const OpId op = net.ops(1).find(kX);
    if (op != kNoSlot) net.ops(1).fail(op, {Errc::cancelled, 2, "cancelled by rank 2"});
    net.run();
    for (std::uint32_t rank = 0; rank < net.ranks(); ++rank) {
      const Errc code = net.outcome(rank, kX).code;
      EXPECT_TRUE(code == Errc::ok || code == Errc::cancelled);
    }
    net.expect_clean();
  }
}

TEST(GroupOpsFailure, TimeoutNamesTheMissingRanks) {
  NetShape shape;
  shape.ranks_of_node = {2, 2, 1};
  GroupOpsNet net(shape, 1);
  for (const std::uint32_t rank : {0u, 2u, 3u}) net.submit(rank, kX, all_reduce_of(100));
  net.run();
  net.ops(0).expire(1000, 1000);
  EXPECT_FALSE(net.done(0, kX)) << "not before its time";
  net.ops(0).expire(1001, 1000);
  net.run();
  const Outcome heard = net.outcome(0, kX);
  EXPECT_EQ(heard.code, Errc::op_timeout);
  EXPECT_TRUE(contains(heard.text, "rank 1, 4")) << heard.text;
  EXPECT_EQ(net.outcome(2, kX).code, Errc::op_timeout);
  for (const std::uint32_t rank : {1u, 4u}) net.submit(rank, kX, all_reduce_of(100));
  net.run();
  net.expect_all(kX, Errc::op_timeout);
  net.expect_clean();
}

TEST(GroupOpsFailure, AUseThatWaitsForTheOneBeforeItTimesOutOnlyWithThat) {
  constexpr OpKey kNext{7, 1};
  const auto begin_first = [](GroupOpsNet& net) {
    for (std::uint32_t rank = 0; rank < 3; ++rank) net.submit(rank, kX, all_reduce_of(kChunk * 90));
    const auto has_begun = [&net](std::uint32_t node) {
      const OpId op = net.ops(node).find(kX);
      return op != kNoSlot && net.ops(node).op(op).has_started();
    };
    while (!(has_begun(0) && has_begun(1) && has_begun(2)) && net.step()) {
    }
  };
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    GroupOpsNet net(three_nodes(), seed);
    begin_first(net);
    for (std::uint32_t rank = 0; rank < 3; ++rank) net.submit(rank, kNext, all_reduce_of(300));
    for (std::uint32_t node = 0; node < 3; ++node) {
      ASSERT_TRUE(net.ops(node).table().waits_for_running_use(net.ops(node).find(kNext)));
      net.ops(node).expire(1'000'000, 1000);
    }
    net.run();
    for (const OpKey& key : {kX, kNext}) net.expect_all(key, Errc::ok);
    net.expect_clean();
  }
  // Half of its time is left then for a rank that does not come.
  GroupOpsNet late(three_nodes(), 1);
  begin_first(late);
  for (const std::uint32_t rank : {0u, 1u}) late.submit(rank, kNext, all_reduce_of(300));
  late.ops(0).expire(1'000'000, 1000);
  late.run();
  late.expect_all(kX, Errc::ok);
  late.ops(0).expire(1'000'499, 1000);
  late.run();
  EXPECT_FALSE(late.done(0, kNext));
  late.ops(0).expire(1'000'500, 1000);
  late.run();
  EXPECT_EQ(late.outcome(0, kNext).code, Errc::op_timeout);
  EXPECT_EQ(late.outcome(0, kNext).about, 2u);
  GroupOpsNet net(three_nodes(), 1);  // where the one before it has not begun
  for (const OpKey& key : {kX, kNext}) {
    for (const std::uint32_t rank : {0u, 1u}) net.submit(rank, key, all_reduce_of(300));
  }
  net.run();
  net.ops(0).expire(1001, 1000);
  net.run();
  for (const OpKey& key : {kX, kNext}) net.submit(2, key, all_reduce_of(300));
  net.run();
  for (const OpKey& key : {kX, kNext}) net.expect_all(key, Errc::op_timeout);
}

// Also where the node that runs out of patience is not the late one.
TEST(GroupOpsFailure, TimeoutBlamesNoRankThatHasSubmitted) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    NetShape shape;
    shape.ranks_of_node = {2, 3, 1};
    GroupOpsNet net(shape, seed);
    for (const std::uint32_t rank : {0u, 2u, 4u}) net.submit(rank, kX, all_reduce_of(100));
    for (const std::uint32_t node : {0u, 1u}) net.ops(node).tell_late(100, 10);
    net.run();
    net.submit(1, kX, all_reduce_of(100));
    net.run();
    net.ops(0).expire(1001, 1000);
    net.run();
    for (const std::uint32_t rank : {0u, 1u, 2u, 4u}) {
      const Outcome heard = net.outcome(rank, kX);
      EXPECT_EQ(heard.code, Errc::op_timeout);
      EXPECT_EQ(heard.text, "after 0 ms not submitted by rank 3, 5");
      EXPECT_EQ(heard.about, 3u);
    }
    for (const std::uint32_t rank : {3u, 5u}) net.submit(rank, kX, all_reduce_of(100));
    net.run();
    net.expect_all(kX, Errc::op_timeout);
    net.expect_clean();
  }
}

TEST(GroupOpsFailure, ASubmissionOfRanksThatThereAreNotBreaksTheProtocol) {
  NetShape shape;
  shape.ranks_of_node = {2, 2};
  GroupOpsNet net(shape, 1);
  EXPECT_FALSE(net.ops(0).on_submitted(1, kX, 0b100));
  EXPECT_EQ(net.ops(0).table().live(), 0u);
}

TEST(GroupOpsFailure, ARankThatLeftFailsWhatWaitsForIt) {
  NetShape shape;
  shape.ranks_of_node = {2, 1};
  GroupOpsNet net(shape, 1);
  net.submit(0, kX, all_reduce_of(100));
  net.submit(2, kX, all_reduce_of(100));
  net.ops(0).on_rank_left(1);
  net.run();
  EXPECT_EQ(net.outcome(0, kX).code, Errc::group_left);
  EXPECT_EQ(net.outcome(2, kX).code, Errc::group_left);
  EXPECT_TRUE(contains(net.outcome(2, kX).text, "rank 1 has left"));
  net.submit(2, {0, 0}, all_reduce_of(4));  // later ops too
  net.run();
  EXPECT_EQ(net.outcome(2, {0, 0}).code, Errc::group_left);
  net.submit(0, {0, 0}, all_reduce_of(4));
  net.run();
  EXPECT_EQ(net.outcome(0, {0, 0}).code, Errc::group_left);
  net.expect_clean();
}

// What has failed before a rank came waits for that rank; when it leaves nobody is waited for.
TEST(GroupOpsFailure, LeavingFreesWhatWaitedForTheRank) {
  NetShape shape;
  shape.ranks_of_node = {2, 1};
  GroupOpsNet net(shape, 1);
  net.submit(0, kX, all_reduce_of(100));
  net.submit(2, kX, all_reduce_of(100));
  net.run();
  net.ops(1).fail(net.ops(1).find(kX), {Errc::cancelled, 2, "cancelled by rank 2"});
  net.run();
  EXPECT_EQ(net.ops(0).table().live(), 1u);
  net.ops(0).on_rank_left(1);
  net.run();
  net.expect_clean();
}

TEST(GroupOpsFailure, EndFailsEverythingAndFreesAlsoWhatHadFailed) {
  NetShape shape;
  shape.ranks_of_node = {2, 2};
  GroupOpsNet net(shape, 1);
  for (const std::uint32_t rank : {0u, 2u, 3u}) net.submit(rank, kX, all_reduce_of(100));
  net.submit(0, {0, 0}, all_reduce_of(100));
  net.submit(2, {0, 1}, all_reduce_of(100));
  net.run();
  net.ops(1).fail(net.ops(1).find(kX), {Errc::cancelled, 2, "cancelled by rank 2"});
  net.run();
  for (std::uint32_t node = 0; node < 2; ++node) net.ops(node).end(Errc::peer_lost, "lost node 5");
  net.run();
  EXPECT_EQ(net.outcome(0, kX).code, Errc::cancelled);
  EXPECT_EQ(net.outcome(0, {0, 0}).code, Errc::peer_lost);
  EXPECT_EQ(net.outcome(2, {0, 1}).text, "lost node 5");
  net.expect_clean();
  EXPECT_EQ(net.ops(0).departures().code(), Errc::peer_lost);
}

// An op completes while a frame still borrows its memory; a rank that comes in between is told with
// it, and the slot is used once only.
TEST(GroupOpsFailure, ARankThatComesBetweenCompletionAndReleaseIsToldOnce) {
  GroupShape shape;
  shape.ranks = {{0, 1}, {2}};
  GroupOps ops(shape);
  const Room room{4, 4, 4, 4};
  OpId op = kNoSlot;
  ops.on_submit({0, kX, all_reduce_of(4), 0, 1}, op);
  ops.on_op_fail(kX, {Errc::cancelled, 2, "cancelled by rank 2"});
  ASSERT_EQ(ops.next(room).kind, ActionKind::complete);
  ops.on_submit({1, kX, all_reduce_of(4), 0, 1}, op);
  ops.release(op);
  EXPECT_EQ(ops.table().live(), 0u);
  EXPECT_EQ(ops.next(room).kind, ActionKind::none);
}

// The lane asks the plan of every op that has been submitted here.
TEST(GroupOpsFailure, AnOpThatFailedBeforeAnybodyDescribedItHasThePlanOfItsFirstSubmission) {
  GroupShape shape;
  shape.ranks = {{0}, {1}};
  GroupOps ops(shape);
  OpId op = kNoSlot;
  ops.on_op_fail(kX, {Errc::cancelled, 1, "cancelled by rank 1"});
  ASSERT_EQ(ops.next({4, 4, 4, 4}).kind, ActionKind::complete);
  ops.release(ops.find(kX));
  ops.on_submit({0, kX, all_reduce_of(4), 0, 1}, op);
  ASSERT_NE(ops.op(op).plan, nullptr);
  EXPECT_TRUE(ops.op(op).plan->reduces());
  ops.compress(op);
  ASSERT_EQ(ops.next({4, 4, 4, 4}).kind, ActionKind::complete);
  EXPECT_EQ(ops.op(op).status, Errc::cancelled);
  ops.release(op);
  EXPECT_EQ(ops.table().live(), 0u);
}

TEST(GroupOpsFailure, OthersFinishWhenANodeIsCutOffAndTheGroupEnds) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    NetShape shape;
    shape.late = seed % 2 == 1;
    shape.ranks_of_node = {1, 2, 1, 1};
    GroupOpsNet net(shape, seed);
    for (std::uint32_t rank = 0; rank < net.ranks(); ++rank)
      net.submit(rank, kX, all_reduce_of(kChunk * 30));
    for (std::uint64_t i = 0; i < seed * 3 && net.step(); ++i) {
    }
    net.cut(3);
    net.run();
    for (std::uint32_t node = 0; node < 3; ++node)
      net.ops(node).end(Errc::peer_lost, "lost node 3");
    net.run();
    for (std::uint32_t rank = 0; rank < 4; ++rank) EXPECT_TRUE(net.done(rank, kX));
    net.expect_clean();
  }
}

// ---- Frames that no correct peer sends ----------------------------------------------------------

TEST(GroupOpsProtocol, RefusesWhatIsOutOfTurn) {
  GroupShape shape;
  shape.chunk_bytes = kChunkBytes;
  shape.eager_bytes = 16;
  shape.ranks = {{0}, {1}};
  GroupOps ops(shape);
  const Room room{4, 4, 4, 4};
  OpId op = kNoSlot;
  ChunkId chunk = kNoSlot;
  auto body = all_reduce_of(kChunk * 8);
  EXPECT_FALSE(ops.on_grant(1, kX, 0, 1)) << "of an op nobody has heard of";
  EXPECT_FALSE(ops.expect_contribution(1, kX, 0, chunk));
  EXPECT_FALSE(ops.expect_result(1, kX, 0, op));
  EXPECT_FALSE(ops.on_verify(1, kX, op));

  body.eager_bytes = 4;
  EXPECT_FALSE(ops.on_announce(1, kX, body, op)) << "eager bytes of an op that is too large";
  body.eager_bytes = 0;
  const OpKey key{9, 0};
  EXPECT_TRUE(ops.on_announce(1, key, body, op));
  EXPECT_FALSE(ops.on_announce(1, key, body, op)) << "twice";
  EXPECT_FALSE(ops.on_grant(1, key, 1, 1)) << "before this node has announced";
  ops.on_submit({0, key, body, 0, 1}, op);
  ASSERT_EQ(do_next(ops, room).kind, ActionKind::announce);
  const ChunkMap& chunks = ops.op(op).chunks;
  const std::uint32_t theirs = chunks.chunk(1, 0);
  const std::uint32_t ours = chunks.chunk(0, 0);
  EXPECT_FALSE(ops.on_grant(1, key, ours, 1)) << "not its chunk";
  EXPECT_FALSE(ops.on_grant(1, key, theirs, 0));
  EXPECT_FALSE(ops.on_grant(1, key, theirs, chunks.owned(1) + 1)) << "more than there are";
  EXPECT_FALSE(ops.on_grant(1, key, theirs, 0xffffffff));
  EXPECT_TRUE(ops.on_grant(1, key, theirs, chunks.owned(1)));
  EXPECT_FALSE(ops.on_grant(1, key, theirs, 1)) << "again";
  EXPECT_FALSE(ops.expect_contribution(1, key, ours, chunk)) << "not granted yet";
  EXPECT_FALSE(ops.expect_result(1, key, ours, op)) << "a result of a chunk it does not own";
  EXPECT_FALSE(ops.expect_result(1, key, 0xffffffff, op));
  EXPECT_FALSE(ops.on_verify(1, key, op)) << "verify is off";
}

TEST(GroupOpsProtocol, AGrantMayComeBeforeTheAnnouncementThatDeclinedEager) {
  GroupShape shape;
  shape.eager_bytes = 4096;
  shape.ranks = {{0}, {1}, {2}};
  GroupOps ops(shape);
  OpId op = kNoSlot;
  auto body = all_reduce_of(16);
  const OpKey key{7, 0};
  ops.on_submit({0, key, body, 0, 1}, op);
  ASSERT_EQ(do_next(ops, {4, 4, 4, 4}).kind, ActionKind::announce);
  EXPECT_TRUE(ops.on_grant(1, key, 0, 1));
  ASSERT_EQ(ops.op(op).chunks.owned(1), 1u);
  body.eager_bytes = 16 * sizeof(float);
  EXPECT_TRUE(ops.on_announce(1, key, body, op));
  body.eager_bytes = 0;
  EXPECT_TRUE(ops.on_announce(2, key, body, op));
  const Action action = ops.next({4, 4, 4, 4});
  EXPECT_EQ(action.kind, ActionKind::contribute);
  EXPECT_EQ(action.node, 1u);
}

TEST(GroupOpsProtocol, RefusesAGrantOfAnOpThatAllAnnouncedEagerly) {
  GroupShape shape;
  shape.eager_bytes = 4096;
  shape.ranks = {{0}, {1}};
  GroupOps ops(shape);
  OpId op = kNoSlot;
  auto body = all_reduce_of(16);
  const OpKey key{9, 0};
  ops.on_submit({0, key, body, 0, 1}, op);
  ASSERT_EQ(do_next(ops, {4, 4, 4, 4}).kind, ActionKind::announce);
  body.eager_bytes = 16 * sizeof(float);
  EXPECT_TRUE(ops.on_announce(1, key, body, op));
  EXPECT_FALSE(ops.on_grant(1, key, 0, 1));
}

TEST(GroupOpsProtocol, RefusesContributionsOutOfOrder) {
  GroupShape shape;
  shape.chunk_bytes = kChunkBytes;
  shape.eager_bytes = 0;
  shape.ranks = {{0}, {1}};
  GroupOps ops(shape);
  OpId op = kNoSlot;
  ops.on_submit({0, kX, all_reduce_of(kChunk * 8), 0, 1}, op);
  ops.on_announce(1, kX, all_reduce_of(kChunk * 8), op);
  const Room room{2, 2, 4, 4};
  ASSERT_EQ(do_next(ops, room).kind, ActionKind::announce);
  const Action grant = do_next(ops, room);
  ASSERT_EQ(grant.kind, ActionKind::grant);
  ASSERT_EQ(grant.count, 2u);
  const ChunkMap chunks = ops.op(op).chunks;
  ChunkId chunk = kNoSlot;
  EXPECT_FALSE(ops.expect_contribution(1, kX, chunks.chunk(0, 1), chunk));
  for (std::uint32_t i = 0; i < 2; ++i) {
    ASSERT_TRUE(ops.expect_contribution(1, kX, chunks.chunk(0, i), chunk));
    ASSERT_NE(chunk, kNoSlot);
    ops.on_contribution(1, chunk);
    EXPECT_FALSE(ops.expect_contribution(1, kX, chunks.chunk(0, i), chunk)) << "twice";
  }
  EXPECT_FALSE(ops.expect_contribution(1, kX, chunks.chunk(0, 2), chunk)) << "beyond the grant";
}

TEST(GroupOpsProtocol, LateFramesOfAnEndedOpAreThrownAway) {
  GroupOpsNet net(three_nodes(), 1);
  for (std::uint32_t rank = 0; rank < 3; ++rank) net.submit(rank, kX, all_reduce_of(100));
  net.run();
  OpId op = 0;
  ChunkId chunk = 0;
  EXPECT_TRUE(net.ops(0).on_announce(1, kX, all_reduce_of(100), op));
  EXPECT_EQ(op, kNoSlot);
  EXPECT_TRUE(net.ops(0).on_grant(1, kX, 0, 1));
  EXPECT_TRUE(net.ops(0).expect_contribution(1, kX, 0, chunk));
  EXPECT_EQ(chunk, kNoSlot);
  EXPECT_TRUE(net.ops(0).expect_result(1, kX, 0, op));
  EXPECT_EQ(op, kNoSlot);
  net.ops(0).on_op_fail(kX, {Errc::cancelled, 1, "too late"});
  net.run();
  net.expect_all(kX, Errc::ok);
  net.expect_clean();
}

// A peer that announces without end is refused before memory is.
// A send is no op of all ranks, whatever a peer says.
TEST(GroupOpsProtocol, AnAnnouncementOfAKindThatIsNoneOfTheGroupsFailsItsOp) {
  for (const int kind : {4, 13, 14, 900}) {
    GroupShape shape;
    shape.ranks = {{0}, {1}};
    GroupOps ops(shape);
    wire::AnnounceBody body = all_reduce_of(100);
    body.kind = static_cast<std::uint16_t>(kind);
    OpId announced = kNoSlot;
    EXPECT_TRUE(ops.on_announce(1, kX, body, announced));
    EXPECT_EQ(announced, kNoSlot);
    const OpId op = ops.find(kX);
    ASSERT_NE(op, kNoSlot);
    EXPECT_EQ(ops.op(op).status, Errc::mismatch) << kind;
    EXPECT_STREQ(ops.op(op).text, "unknown kind of operation");
  }
}

TEST(GroupOpsProtocol, MoreAnnouncementsThanAllowedAreRefused) {
  GroupShape shape;
  shape.max_ops_in_flight = 4;
  shape.eager_bytes = 0;
  shape.ranks = {{0}, {1}};
  GroupOps ops(shape);
  std::uint64_t accepted = 0;
  OpId op = kNoSlot;
  while (accepted < 1000 && ops.on_announce(1, {0, accepted}, all_reduce_of(4), op)) ++accepted;
  EXPECT_GE(accepted, 4u);
  EXPECT_LE(accepted, 12u);
}

// The epoch goes on until the last rank of all nodes has left.
TEST(GroupOpsProtocol, WhatOthersSayAfterTheLastRankHereHasLeftLeavesNothing) {
  GroupShape shape;
  shape.max_ops_in_flight = 4;
  shape.eager_bytes = 0;
  shape.ranks = {{0}, {1}};
  GroupOps ops(shape);
  ops.on_rank_left(0);
  OpId op = kNoSlot;
  for (std::uint64_t tensor = 1; tensor <= 1000; ++tensor) {
    if (tensor % 2 == 0) {
      ASSERT_TRUE(ops.on_announce(1, {tensor, 0}, all_reduce_of(4), op));
    } else if (tensor % 3 == 0) {
      ASSERT_TRUE(ops.on_submitted(1, {tensor, 0}, 1));
    } else {
      ops.on_op_fail({tensor, 0}, {Errc::cancelled, 1, "cancelled"});
    }
    for (Action action = ops.next({4, 4, 4, 4}); action.kind != ActionKind::none;
         action = ops.next({4, 4, 4, 4})) {
      action.kind == ActionKind::complete ? ops.release(action.op) : ops.done(action);
    }
  }
  EXPECT_EQ(ops.table().live(), 0u);
  EXPECT_EQ(ops.table().tensors(), 0u);
}

}  // namespace group_ops_failure_test
}  // namespace tern::collective
