#include "collective/legs.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "collective/op_plan.h"
#include "group_ops_net.h"

namespace tern::collective {
namespace legs_test {

constexpr OpId kOp = 0;
constexpr Room kRoom{8, 8, 8, 8};

GroupShape shape_of(std::uint32_t nodes, std::uint32_t self = 0) {
  GroupShape shape;
  shape.node = self;
  shape.chunk_bytes = kChunkBytes;
  shape.eager_bytes = 0;
  shape.active_chunks = 4;
  for (std::uint32_t node = 0; node < nodes; ++node) shape.ranks.push_back({node});
  return shape;
}

class LegsOfOneOp : public testing::Test {
 protected:
  void begin(std::uint32_t nodes, const wire::AnnounceBody& body) {
    shape = shape_of(nodes);
    legs = std::make_unique<Legs>(shape, 2);
    describe(op, body, shape);
  }
  Action next(const Room& room = kRoom, const InputGate& inputs = WholeInputs()) {
    return legs->next(kOp, op, {room, inputs});
  }
  // The contribution of `node` to our chunk of this index arrives.
  void contribute(std::uint32_t node, std::uint32_t index) {
    const ChunkId chunk = legs->expected_by(kOp, op, node, op.chunks.chunk(0, index));
    ASSERT_NE(chunk, kNoSlot);
    legs->contributed(chunk, node);
  }

  GroupShape shape;
  std::unique_ptr<Legs> legs;
  Op op;
};

TEST_F(LegsOfOneOp, AChunkIsAddedInAFixedOrderOneActionAtATime) {
  begin(3, all_reduce_of(kChunk * 3));
  const Action grant = next();
  ASSERT_EQ(grant.kind, ActionKind::grant);
  contribute(2, 0);
  EXPECT_EQ(next().kind, ActionKind::none) << "the grant is in flight";
  legs->done(grant, op);
  EXPECT_EQ(next().kind, ActionKind::none) << "node 1 is first";
  contribute(1, 0);
  const Action first = next();
  EXPECT_EQ(first.kind, ActionKind::begin_add);
  EXPECT_EQ(first.node, 1u);
  EXPECT_EQ(next().kind, ActionKind::none) << "of one chunk one at a time";
  legs->done(first, op);
  const Action second = next();
  EXPECT_EQ(second.kind, ActionKind::add);
  EXPECT_EQ(second.node, 2u);
  legs->done(second, op);
  EXPECT_EQ(next({8, 8, 8, 0}).kind, ActionKind::none) << "no room for a result";
  const Action finish = next();
  EXPECT_EQ(finish.kind, ActionKind::finish);
  EXPECT_EQ(next().kind, ActionKind::none);
  EXPECT_EQ(legs->done(finish, op), 1u);
  EXPECT_EQ(legs->slot(kOp, 0), kNoSlot);
}

TEST_F(LegsOfOneOp, GrantsGoOutOneAfterTheOther) {
  begin(2, all_reduce_of(kChunk * 8));
  const Action grant = next({1, 8, 0, 0});
  EXPECT_EQ(grant.count, 1u);
  EXPECT_EQ(next({8, 8, 0, 0}).kind, ActionKind::none);
  legs->done(grant, op);
  const Action rest = next({8, 8, 0, 0});
  EXPECT_EQ(rest.kind, ActionKind::grant);
  EXPECT_EQ(rest.index, 1u);
  EXPECT_EQ(rest.count, 3u) << "as many as may be active";
}

// A grant behind a result on its link would keep the other node waiting while that travels.
TEST_F(LegsOfOneOp, WhatThereIsRoomForIsGrantedBeforeASumIsFinished) {
  begin(2, all_reduce_of(kChunk * 4));
  constexpr Room kForOne{8, 1, 8, 8};
  const Action first = next(kForOne);
  ASSERT_EQ(first.kind, ActionKind::grant);
  ASSERT_EQ(first.count, 1u);
  legs->done(first, op);
  contribute(1, 0);
  const Action add = next({8, 0, 8, 8});
  ASSERT_EQ(add.kind, ActionKind::begin_add);
  legs->done(add, op);
  const Action second = next(kForOne);
  EXPECT_EQ(second.kind, ActionKind::grant);
  EXPECT_EQ(second.index, 1u);
  EXPECT_EQ(next(kForOne).kind, ActionKind::finish);
}

TEST_F(LegsOfOneOp, ContributionsToOneNodeGoOutInOrder) {
  begin(3, all_reduce_of(kChunk * 9));
  op.contribution = Contribution::blocks;
  for (const std::uint32_t node : {1u, 2u}) {
    ASSERT_TRUE(legs->take_grant(kOp, op, {node, op.chunks.chunk(node, 0), 3}));
  }
  const Room no_grants{0, 0, 8, 8};
  const Action to_two = next(no_grants);
  const Action to_one = next(no_grants);
  EXPECT_EQ(to_one.node, 1u);
  EXPECT_EQ(to_two.node, 2u);
  EXPECT_EQ(next(no_grants).kind, ActionKind::none);
  legs->done(to_two, op);
  const Action again = next(no_grants);
  EXPECT_EQ(again.kind, ActionKind::contribute);
  EXPECT_EQ(again.node, 2u);
  EXPECT_EQ(again.index, 1u);
}

TEST_F(LegsOfOneOp, NothingIsContributedBeforeAllThatIsSentHasBeenLookedThrough) {
  begin(3, all_reduce_of(kChunk * 5));
  op.contribution = Contribution::scanned_blocks;
  ASSERT_TRUE(legs->take_grant(kOp, op, {1, op.chunks.chunk(1, 0), op.chunks.owned(1)}));
  const Room no_grants{0, 0, 8, 8};
  std::vector<std::uint32_t> scanned;
  for (std::uint32_t i = 0; i < op.chunks.owned(1) + op.chunks.owned(2); ++i) {
    const Action scan = next(no_grants);
    ASSERT_EQ(scan.kind, ActionKind::scan);
    EXPECT_NE(scan.node, 0u) << "what it owns it does not send";
    scanned.push_back(op.chunks.chunk(scan.node, scan.index));
    EXPECT_EQ(next(no_grants).kind, ActionKind::none) << "one after the other";
    EXPECT_EQ(legs->done(scan, op), 0u);
  }
  std::sort(scanned.begin(), scanned.end());
  EXPECT_EQ(std::unique(scanned.begin(), scanned.end()), scanned.end());
  EXPECT_EQ(next(no_grants).kind, ActionKind::contribute);
}

TEST_F(LegsOfOneOp, WhatIsPublishedIsLookedThroughFirst) {
  begin(2, broadcast_of(kChunk * 2, 0));
  op.contribution = Contribution::scanned_blocks;
  for (std::uint32_t i = 0; i < op.chunks.owned(0); ++i) {
    const Action scan = next();
    ASSERT_EQ(scan.kind, ActionKind::scan);
    EXPECT_EQ(scan.node, 0u);
    EXPECT_EQ(next().kind, ActionKind::none);
    legs->done(scan, op);
  }
  EXPECT_EQ(next().kind, ActionKind::publish);
}

// Node 1 adds node 2's contribution first, and node 3 this one's.
TEST_F(LegsOfOneOp, ContributionsGoFirstToWhomAddsThemFirst) {
  begin(4, all_reduce_of(kChunk * 4));
  for (const std::uint32_t node : {1u, 2u, 3u}) {
    ASSERT_TRUE(legs->take_grant(kOp, op, {node, op.chunks.chunk(node, 0), 1}));
  }
  const Room no_grants{0, 0, 8, 8};
  for (const std::uint32_t node : {3u, 2u, 1u}) EXPECT_EQ(next(no_grants).node, node);
}

// What ranks have, up to a chunk.
class InputsBelow final : public InputGate {
 public:
  explicit InputsBelow(std::uint32_t chunk) : end_(chunk) {}
  bool has(OpId, std::uint32_t chunk) const noexcept override { return chunk < end_; }
  bool has_all(OpId) const noexcept override { return false; }

 private:
  std::uint32_t end_;
};

TEST_F(LegsOfOneOp, WhatReadsInputsWaitsForThem) {
  begin(2, all_reduce_of(kChunk * 4));
  const std::uint32_t own = op.chunks.chunk(0, 0), other = op.chunks.chunk(1, 0);
  const Action grant = next(kRoom, InputsBelow(0));
  ASSERT_EQ(grant.kind, ActionKind::grant) << "a grant reads nothing";
  legs->done(grant, op);
  ASSERT_TRUE(legs->take_grant(kOp, op, {1, other, 2}));
  contribute(1, 0);
  EXPECT_EQ(next(kRoom, InputsBelow(std::min(own, other))).kind, ActionKind::none);
  const Action add = next(kRoom, InputsBelow(own + 1));
  EXPECT_EQ(add.kind, own < other ? ActionKind::begin_add : ActionKind::contribute);
  const Action both = next(kRoom, InputsBelow(std::max(own, other) + 1));
  EXPECT_NE(both.kind, ActionKind::none);
  EXPECT_NE(both.kind, add.kind);
}

TEST_F(LegsOfOneOp, NothingComesOfAnActionWhoseOpHasFailed) {
  begin(2, all_reduce_of(kChunk * 2));
  const Action grant = next();
  legs->done(grant, op);
  contribute(1, 0);
  const Action add = next();
  ASSERT_EQ(add.kind, ActionKind::begin_add);
  op.status = Errc::internal;
  EXPECT_EQ(legs->done(add, op), 0u);
  EXPECT_EQ(next().kind, ActionKind::begin_add) << "it counts as not added";
}

TEST_F(LegsOfOneOp, ParkedSumsAreFinishedWhenAllAreThere) {
  begin(1, all_reduce_of(kChunk * 2));
  const Action grant = next();
  EXPECT_EQ(grant.count, 2u);
  legs->done(grant, op);
  std::uint32_t parked = 0;
  for (Action action = next(); action.kind != ActionKind::finish_parked; action = next()) {
    ASSERT_NE(action.kind, ActionKind::none);
    if (action.kind != ActionKind::finish) {
      legs->done(action, op);
      continue;
    }
    legs->park(action);
    if (++parked < 2) continue;
    EXPECT_EQ(legs->parked(kOp).size(), 2u);
  }
  EXPECT_EQ(legs->parked(kOp).size(), 1u);
}

TEST_F(LegsOfOneOp, WhatMovesIsPublished) {
  begin(2, broadcast_of(kChunk * 2, 0));
  const Action first = next();
  const Action second = next();
  EXPECT_EQ(first.kind, ActionKind::publish);
  EXPECT_EQ(second.index, 1u);
  EXPECT_EQ(next().kind, ActionKind::none);
  EXPECT_EQ(legs->done(second, op), 1u);
  EXPECT_EQ(legs->done(first, op), 1u);
}

TEST_F(LegsOfOneOp, RefusesMoreResultsThanANodeOwns) {
  begin(2, all_reduce_of(kChunk * 2));
  EXPECT_FALSE(legs->expects_result(kOp, op, 1, op.chunks.chunk(0, 0)));
  EXPECT_TRUE(legs->expects_result(kOp, op, 1, op.chunks.chunk(1, 0)));
  legs->got_result(kOp, 1);
  EXPECT_FALSE(legs->expects_result(kOp, op, 1, op.chunks.chunk(1, 0)));
}

TEST_F(LegsOfOneOp, FreedChunksAreOthers) {
  begin(2, all_reduce_of(kChunk * 8));
  const Action grant = next();
  EXPECT_EQ(grant.count, 4u);
  legs->done(grant, op);
  legs->free_chunks(kOp);
  EXPECT_EQ(legs->slot(kOp, 0), kNoSlot);
  legs->forget(kOp);
  EXPECT_EQ(next().count, 4u);
}

}  // namespace legs_test
}  // namespace tern::collective
