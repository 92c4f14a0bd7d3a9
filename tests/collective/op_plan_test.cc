#include "collective/op_plan.h"

#include <gtest/gtest.h>

#include <string>

#include "group_ops_net.h"
#include "plan/plans.h"
#include "wire/block.h"

namespace tern::collective {
namespace op_plan_test {

GroupShape three_nodes() {
  GroupShape shape;
  shape.ranks = {{0, 1}, {2}, {3}};
  shape.chunk_bytes = kChunkBytes;
  shape.eager_bytes = 4 * kChunkBytes;
  return shape;
}

Op described(const wire::AnnounceBody& body, const GroupShape& shape) {
  Op op;
  describe(op, body, shape);
  return op;
}

TEST(OpPlan, ABroadcastBelongsToTheNodeOfItsRoot) {
  const GroupShape shape = three_nodes();
  const Op op = described(broadcast_of(kChunk * 10, 2), shape);
  EXPECT_EQ(op.plan, &plan::kBroadcast);
  EXPECT_EQ(op.root_node, 1u);
  EXPECT_EQ(op.chunks.owned(1), 10u);
  EXPECT_EQ(op.chunks.owned(0), 0u);
  EXPECT_EQ(op.steps_left, 10u);
  EXPECT_FALSE(op.is_eager());
}

TEST(OpPlan, ChunksOfAReductionAreStriped) {
  const GroupShape shape = three_nodes();
  const Op op = described(all_reduce_of(kChunk * 9), shape);
  for (std::uint32_t node = 0; node < 3; ++node) EXPECT_EQ(op.chunks.owned(node), 3u);
}

TEST(OpPlan, SmallOpsAreEagerAndABarrierIsAlways) {
  GroupShape shape = three_nodes();
  EXPECT_TRUE(described(all_reduce_of(kChunk * 4), shape).is_eager());
  EXPECT_FALSE(described(all_reduce_of(kChunk * 4 + 1), shape).is_eager());
  shape.eager_bytes = 0;
  EXPECT_TRUE(described(barrier(), shape).is_eager());
  EXPECT_FALSE(described(all_reduce_of(1), shape).is_eager());
}

TEST(OpPlan, TheShapeIsOfOneRank) {
  const GroupShape shape = three_nodes();
  const plan::Shape of_rank = shape_for(described(broadcast_of(5, 3), shape), 2, shape);
  EXPECT_EQ(of_rank.count, 5u);
  EXPECT_EQ(of_rank.root, 3u);
  EXPECT_EQ(of_rank.rank, 2u);
  EXPECT_EQ(of_rank.ranks, 4u);
}

TEST(OpPlan, EagerBytesAreEachNodesOrTheRootsOnly) {
  const GroupShape shape = three_nodes();
  Op reduced = described(all_reduce_of(3), shape);
  const Op moved = described(broadcast_of(3, 3), shape);
  for (std::uint32_t node = 0; node < 3; ++node) {
    EXPECT_EQ(eager_bytes_of(reduced, node, 1, shape), 12u);
    EXPECT_EQ(eager_bytes_of(moved, node, 1, shape), node == 2 ? 12u : 0u);
    EXPECT_EQ(eager_bytes_of(described(barrier(), shape), node, 1, shape), 0u);
  }
  decline_eager(reduced, shape);
  EXPECT_EQ(eager_bytes_of(reduced, 0, 1, shape), 0u);
}

TEST(OpPlan, ANodeThatBringsNoContributionDeclines) {
  const GroupShape shape = three_nodes();
  auto body = all_reduce_of(kChunk * 2);
  Op op = described(body, shape);
  body.eager_bytes = 3;
  EXPECT_FALSE(eager_bytes_agree(op, 1, body, shape));
  EXPECT_TRUE(op.is_eager());
  body.eager_bytes = 2 * kChunkBytes;
  EXPECT_TRUE(eager_bytes_agree(op, 1, body, shape));
  EXPECT_TRUE(op.is_eager());
  body.eager_bytes = 0;
  EXPECT_TRUE(eager_bytes_agree(op, 2, body, shape));
  EXPECT_FALSE(op.is_eager());
  EXPECT_EQ(op.steps_left, 2u);
  body.eager_bytes = 2 * kChunkBytes;
  EXPECT_TRUE(eager_bytes_agree(op, 0, body, shape)) << "it could not know";
}

TEST(OpPlan, AContributionMayBeABlockWhereTheGroupKnowsThem) {
  GroupShape shape = three_nodes();
  const wire::AnnounceBody elements = all_reduce_of(2 * kChunk);
  wire::AnnounceBody body = elements;
  body.flags |= wire::kAnnounceBlock;
  body.eager_bytes = wire::kBlockHeaderBytes + 5;
  EXPECT_TRUE(same_op(body, elements));
  Op op = described(elements, shape);
  EXPECT_FALSE(eager_bytes_agree(op, 1, body, shape)) << "another form of the group";
  shape.eager_form = EagerForm::blocks;
  EXPECT_TRUE(may_bring_block(op, shape));
  EXPECT_TRUE(eager_bytes_agree(op, 1, body, shape));
  body.eager_bytes = wire::kBlockHeaderBytes - 1;
  EXPECT_FALSE(eager_bytes_agree(op, 1, body, shape)) << "no block is so short";
  body = elements;
  for (const std::uint64_t bytes : {std::uint64_t{0}, 2 * kChunkBytes - 1}) {
    body.eager_bytes = static_cast<std::uint32_t>(bytes);
    EXPECT_FALSE(eager_bytes_agree(op, 1, body, shape)) << "nobody declines";
  }
  body.eager_bytes = 2 * kChunkBytes;
  EXPECT_TRUE(eager_bytes_agree(op, 1, body, shape));
  decline_eager(op, shape);
  EXPECT_TRUE(op.is_eager());
}

TEST(OpPlan, WhatBuildsOnBlocksBeforeOrEndsWithItsOwnersIsNoBlockInAnAnnouncement) {
  GroupShape shape = three_nodes();
  shape.eager_form = EagerForm::blocks;
  for (std::uint8_t memory = 0; memory <= 4; ++memory) {
    wire::AnnounceBody body = all_reduce_of(2 * kChunk);
    body.memory = memory;
    EXPECT_EQ(may_bring_block(described(body, shape), shape), memory <= 1) << int{memory};
  }
  EXPECT_FALSE(may_bring_block(described(all_reduce_of(4 * kChunk + 1), shape), shape));
  EXPECT_FALSE(may_bring_block(described(barrier(), shape), shape));
  EXPECT_FALSE(may_bring_block(described(broadcast_of(3, 2), shape), shape));
  wire::AnnounceBody owned = all_reduce_of(4);
  owned.kind = plan::kReduceScatter.number;
  EXPECT_FALSE(may_bring_block(described(owned, shape), shape));
}

TEST(OpPlan, ChunksAreAnnouncedWhereEachNodeOwnsOneThatFits) {
  GroupShape shape = three_nodes();
  shape.eager_bytes = kChunkBytes;
  const auto announces = [&](const wire::AnnounceBody& body) {
    return described(body, shape).announces_chunks();
  };
  EXPECT_FALSE(announces(all_reduce_of(3 * kChunk))) << "another form of the group";
  shape.eager_form = EagerForm::chunks;
  EXPECT_TRUE(announces(all_reduce_of(3 * kChunk)));
  EXPECT_TRUE(announces(all_reduce_of(kChunk + 1)));
  EXPECT_FALSE(announces(all_reduce_of(kChunk))) << "it goes whole";
  EXPECT_FALSE(announces(all_reduce_of(3 * kChunk + 1))) << "a node owns two";
  shape.eager_bytes = kChunkBytes - 1;
  EXPECT_FALSE(announces(all_reduce_of(3 * kChunk)));
  shape.eager_bytes = kChunkBytes;
  EXPECT_FALSE(announces(broadcast_of(3 * kChunk, 2)));
  wire::AnnounceBody body = all_reduce_of(3 * kChunk);
  for (std::uint8_t memory = 0; memory <= 4; ++memory) {
    body.memory = memory;
    EXPECT_EQ(announces(body), memory <= 1) << int{memory};
  }
  body = all_reduce_of(3 * kChunk);
  body.flags = wire::kAnnounceOneLane;
  EXPECT_FALSE(announces(body)) << "one scale for all";
  body = all_reduce_of(3 * kChunk);
  body.kind = plan::kReduceScatter.number;
  EXPECT_FALSE(announces(body));
  shape.ranks = {{0, 1, 2}};
  EXPECT_FALSE(announces(all_reduce_of(kChunk + 1))) << "there is nobody else";
}

TEST(OpPlan, AnAnnouncementBringsTheOwnerABlockAndNobodyElse) {
  GroupShape shape = three_nodes();
  shape.eager_bytes = kChunkBytes;
  shape.eager_form = EagerForm::chunks;
  const wire::AnnounceBody without = all_reduce_of(2 * kChunk);  // the third node owns none
  wire::AnnounceBody with = without;
  with.flags |= wire::kAnnounceBlock;
  with.eager_bytes = wire::kBlockHeaderBytes + kChunkBytes;
  wire::AnnounceBody plain = without;
  plain.eager_bytes = kChunkBytes;
  wire::AnnounceBody no_block = with;
  no_block.eager_bytes = wire::kBlockHeaderBytes - 1;
  for (std::uint32_t node = 0; node < 3; ++node) {
    shape.node = node;
    Op op = described(without, shape);
    const bool owns = op.chunks.owned(node) != 0;
    const std::uint32_t other = (node + 1) % 3;
    EXPECT_EQ(eager_bytes_agree(op, other, with, shape), owns);
    EXPECT_EQ(eager_bytes_agree(op, other, without, shape), !owns);
    EXPECT_FALSE(eager_bytes_agree(op, other, plain, shape));
    EXPECT_FALSE(eager_bytes_agree(op, other, no_block, shape));
  }
}

TEST(OpPlan, OnlyTheRootMayBringValuesAndItMust) {
  const GroupShape shape = three_nodes();
  auto body = broadcast_of(4, 3);
  Op op = described(body, shape);
  EXPECT_TRUE(eager_bytes_agree(op, 0, body, shape));
  EXPECT_FALSE(eager_bytes_agree(op, 2, body, shape));
  body.eager_bytes = 16;
  EXPECT_TRUE(eager_bytes_agree(op, 2, body, shape));
  EXPECT_FALSE(eager_bytes_agree(op, 0, body, shape));
  EXPECT_TRUE(op.is_eager());
}

TEST(OpPlan, ANodeDeclinesWhatMovesByAFlag) {
  const GroupShape shape = three_nodes();
  for (const plan::Plan* plan : {&plan::kAllGather, &plan::kGather}) {
    const bool may_lose = plan->may_lose;
    wire::AnnounceBody body{};
    body.kind = plan->number;
    body.count = 4;
    Op op = described(body, shape);
    EXPECT_TRUE(op.is_eager());
    EXPECT_FALSE(declines(op, shape));
    body.flags = wire::kAnnounceDeclines;
    EXPECT_EQ(eager_bytes_agree(op, 1, body, shape), may_lose) << "node 1 has a share for node 0";
    EXPECT_EQ(op.is_eager(), !may_lose);
    EXPECT_EQ(declines(op, shape), may_lose) << "this node follows";
    body.eager_bytes = 4;
    EXPECT_EQ(eager_bytes_agree(op, 1, body, shape), !may_lose) << "who declines brings nothing";
    body.flags = 0;
    EXPECT_TRUE(eager_bytes_agree(op, 2, body, shape)) << "it could not know";
    EXPECT_EQ(op.is_eager(), !may_lose);
  }
}

TEST(OpPlan, AMismatchNamesBothInTheWordsOfTheirPlans) {
  auto first = all_reduce_of(4, DType::i32, Reduction::max);
  first.rank = 1;
  auto other = broadcast_of(4, 2);
  other.rank = 3;
  EXPECT_FALSE(same_op(first, other));
  char text[184];
  write_mismatch(first, other, text);
  EXPECT_STREQ(text,
               "rank 1 says all_reduce 4 i32 max (exact, memory 0, gen 0), "
               "rank 3 says broadcast 4 f32 from 2 (exact)");
}

}  // namespace op_plan_test
}  // namespace tern::collective
