#include "daemon/lane/reduce_leg.h"

#include <gtest/gtest.h>

#include "group_rig.h"

namespace tern::daemon::reduce_leg_test {
namespace {

using collective::Action;
using collective::ActionKind;
using collective::OpId;
using group_test::AllNodes;
using group_test::kChunk;
using group_test::Node;
using group_test::ramp;
using group_test::raw_block;
using group_test::Spec;
using wire::FrameKind;

// Two chunks of each node: of tensor 2 the even ones are node 0's.
constexpr std::uint64_t kCount = 4 * kChunk - 8;

class ReduceLegTest : public AllNodes {
 protected:
  Node& owner() { return node(0); }
  Node& other() { return node(1); }

  // The owner has granted its chunks.
  std::vector<OpId> begin_granted(const Spec& spec, const LaneOp& lane_op = {}) {
    auto ops = begin(spec, lane_op);
    owner().carry_out_next(ActionKind::grant);
    settle();
    return ops;
  }
  // A contribution of the other node as its header says.
  wire::FrameHeader contribution(OpId op, std::uint32_t chunk, std::size_t bytes) {
    wire::FrameHeader header = other().core.block_header(wire::Leg::reduce, op, chunk);
    header.payload_bytes = static_cast<std::uint32_t>(bytes);
    return header;
  }
  // Comes whole, without a link.
  bool arrive(const wire::FrameHeader& header, std::span<const std::byte> block) {
    filling() = {};
    net::PayloadPlace place;
    if (!owner().reduce.place_contribution(1, header, place)) return false;
    if (!place.body.empty()) std::copy(block.begin(), block.end(), place.body.begin());
    owner().reduce.accept_contribution(1, header);
    filling() = {};
    return true;
  }
  bool would_be_placed(const wire::FrameHeader& header) {
    filling() = {};
    net::PayloadPlace place;
    return owner().reduce.place_contribution(1, header, place);
  }
  // What the other node's link fills.
  filling::Anything& filling() { return owner().core.peer(1).receiving.fills; }
  std::uint32_t free_receive_slabs() {
    return owner().resources.memory.receive_slabs().free_count();
  }
};

// ---- Grants

TEST_F(ReduceLegTest, AGrantSaysWhichChunksTheOwnerHasRoomFor) {
  begin_granted({.tensor = 2, .count = kCount, .use = 4});
  const auto grants = other().frames_of(FrameKind::grant);
  ASSERT_EQ(grants.size(), 1u);
  EXPECT_EQ(grants[0].chunk, 0u);
  EXPECT_EQ(grants[0].count, 2u);
  EXPECT_EQ(grants[0].tensor, 2u);
  EXPECT_EQ(grants[0].op_seq, 4u);
  EXPECT_EQ(owner().job.held.accumulators, 2u);
  EXPECT_EQ(owner().job.held.receive_slabs, 2u);
  // A grant is no block.
  EXPECT_EQ(owner().resources.counters->blocks.load(), 0u);
}

TEST_F(ReduceLegTest, AGrantOfWhatIsNotThePeersIsABreach) {
  const auto ops = begin({.count = kCount});
  wire::FrameHeader grant = owner().core.header(FrameKind::grant, ops[0]);
  grant.count = 1;
  grant.chunk = 1;  // our own
  EXPECT_FALSE(other().reduce.accept_grant(0, grant));
  grant.chunk = 2;  // not the first of those that are the peer's
  EXPECT_FALSE(other().reduce.accept_grant(0, grant));
  grant.chunk = 0;
  grant.count = 3;  // it has two
  EXPECT_FALSE(other().reduce.accept_grant(0, grant));
  grant.count = 0;
  EXPECT_FALSE(other().reduce.accept_grant(0, grant));
  grant.count = 2;
  grant.payload_bytes = 1;
  EXPECT_FALSE(other().reduce.accept_grant(0, grant));
  grant.payload_bytes = 0;
  EXPECT_TRUE(other().reduce.accept_grant(0, grant));
  EXPECT_FALSE(other().reduce.accept_grant(0, grant));  // once
}

// ---- Contributions to other nodes

TEST_F(ReduceLegTest, AGrantedChunkIsContributedAndAddedToTheOwners) {
  const auto ops = begin_granted({.count = kCount});
  owner().give(ops[0], ramp(kCount, 0, 1));
  other().give(ops[1], ramp(kCount, 5, 2));
  other().carry_out_next(ActionKind::grant);
  other().carry_out_next(ActionKind::contribute);
  settle();
  const Action added = owner().carry_out_next(ActionKind::begin_add);
  EXPECT_EQ(added.node, 1u);
  EXPECT_EQ(owner().core.ops().chunk_number(added.chunk), 0u);
  const auto sum = host_bytes(owner().reduce.chunks().sum(added.chunk));
  EXPECT_EQ(as_floats(sum.data())[0], 5.0f);
  EXPECT_EQ(as_floats(sum.data())[kChunk - 1], 5.0f + 3 * (kChunk - 1));
  // The slab has been read.
  EXPECT_EQ(owner().job.held.receive_slabs, 1u);
  EXPECT_EQ(other().core.peer(0).work.sent_bytes, kChunk * sizeof(float));
  EXPECT_EQ(owner().core.peer(1).work.added_bytes, kChunk * sizeof(float));
}

TEST_F(ReduceLegTest, APlainContributionBorrowsTheInputUntilItIsAcknowledged) {
  const auto ops = begin_granted({.count = kCount});
  other().give(ops[1], ramp(kCount, 1, 1));
  other().carry_out_next(ActionKind::grant);
  other().carry_out_next(ActionKind::contribute);
  EXPECT_EQ(other().core.lane_op(ops[1]).pins, 1u);
  EXPECT_EQ(other().resources.memory.send_slabs().free_count(),
            other().resources.memory.send_slabs().count());
  settle_acks();
  EXPECT_EQ(other().core.lane_op(ops[1]).pins, 0u);
  EXPECT_EQ(other().acked, std::vector<OpId>{ops[1]});
  const auto frames = owner().frames_of(FrameKind::contribution);
  ASSERT_EQ(frames.size(), 1u);
  EXPECT_EQ(frames[0].flags, wire::kFlagRawBlock);
  const auto sent = ramp(kChunk, 1, 1);
  const auto block = raw_block(DType::f32, sent);
  EXPECT_EQ(owner().frames.back().payload, block);
  EXPECT_EQ(other().core.lane_op(ops[1]).bytes_raw, kChunk * sizeof(float));
  EXPECT_EQ(other().core.lane_op(ops[1]).bytes_sent, block.size());
}

TEST_F(ReduceLegTest, AnEncodedContributionHoldsItsSlabUntilItIsAcknowledged) {
  const Spec spec{.count = kCount};
  const auto tensor = other().declare(spec, "bf16");
  const auto ops = begin_granted(spec, Node::by_recipe_of(*tensor));
  other().give(ops[1], ramp(kCount, 1, 1));
  other().carry_out_next(ActionKind::grant);
  other().carry_out_next(ActionKind::contribute);
  SlabPool& slabs = other().resources.memory.send_slabs();
  EXPECT_EQ(slabs.free_count(), slabs.count() - 1);
  EXPECT_EQ(other().core.lane_op(ops[1]).pins, 0u);
  settle_acks();
  EXPECT_EQ(slabs.free_count(), slabs.count());
  const auto frames = owner().frames_of(FrameKind::contribution);
  ASSERT_EQ(frames.size(), 1u);
  EXPECT_EQ(frames[0].flags, 0u);
  EXPECT_EQ(owner().frames.back().payload, group_test::lossy_block("bf16", ramp(kChunk, 1, 1)));
  EXPECT_EQ(other().core.lane_op(ops[1]).bytes_sent, frames[0].payload_bytes);
  EXPECT_EQ(other().core.lane_op(ops[1]).bytes_raw, kChunk * sizeof(float));
}

// ---- Contributions of other nodes

TEST_F(ReduceLegTest, AContributionThatWasNotGrantedIsABreach) {
  const auto ops = begin({.count = kCount});
  const auto block = raw_block(DType::f32, ramp(kChunk, 1, 1));
  EXPECT_FALSE(would_be_placed(contribution(ops[1], 0, block.size())));
  owner().carry_out_next(ActionKind::grant);
  EXPECT_FALSE(would_be_placed(contribution(ops[1], 1, block.size())));  // the peer's own
  EXPECT_FALSE(would_be_placed(contribution(ops[1], 2, block.size())));  // before its turn
  EXPECT_TRUE(arrive(contribution(ops[1], 0, block.size()), block));
  EXPECT_FALSE(would_be_placed(contribution(ops[1], 0, block.size())));  // again
  EXPECT_TRUE(would_be_placed(contribution(ops[1], 2, block.size())));
  wire::FrameHeader unknown = contribution(ops[1], 0, block.size());
  unknown.tensor = 77;
  EXPECT_FALSE(would_be_placed(unknown));
}

TEST_F(ReduceLegTest, AContributionThatIsNoBlockByItsLengthIsABreach) {
  const auto ops = begin_granted({.count = kCount});
  EXPECT_FALSE(would_be_placed(contribution(ops[1], 0, wire::kBlockHeaderBytes - 1)));
  const std::size_t room = owner().resources.memory.receive_slabs().slab(0).size();
  EXPECT_FALSE(would_be_placed(contribution(ops[1], 0, room + 1)));
  EXPECT_TRUE(would_be_placed(contribution(ops[1], 0, wire::kBlockHeaderBytes)));
}

TEST_F(ReduceLegTest, ABlockThatMakesNoSenseFailsTheOpAndIsCounted) {
  const auto ops = begin_granted({.count = kCount});
  const auto block = raw_block(DType::f32, ramp(kChunk - 1, 1, 1));
  ASSERT_TRUE(arrive(contribution(ops[1], 0, block.size()), block));
  owner().carry_out_next(ActionKind::begin_add);
  const collective::Op& op = owner().core.op(ops[0]);
  EXPECT_TRUE(op.failed());
  EXPECT_EQ(op.status, Errc::corrupt_data);
  EXPECT_STREQ(op.text,
               "contribution of node 1 to chunk 0: the block's sizes differ from the chunk's");
  EXPECT_EQ(owner().resources.counters->bad_blocks.load(), 1u);
  owner().carry_out_all();
  owner().expect_all_memory_is_free();
}

TEST_F(ReduceLegTest, AContributionToAnOpThatHasFailedIsThrownAway) {
  const auto ops = begin_granted({.count = kCount});
  owner().core.ops().fail(ops[0], {Errc::cancelled, 0, "enough"});
  net::PayloadPlace place;
  EXPECT_TRUE(owner().reduce.place_contribution(1, contribution(ops[1], 0, 1000), place));
  EXPECT_TRUE(place.body.empty());
  EXPECT_TRUE(std::holds_alternative<std::monostate>(filling()));
  owner().reduce.accept_contribution(1, contribution(ops[1], 0, 1000));
}

// ---- Memory

TEST_F(ReduceLegTest, ASlabThatAFrameIsFillingOutlivesItsChunk) {
  const auto ops = begin_granted({.count = kCount});
  const auto header = contribution(ops[1], 0, 1000);
  net::PayloadPlace place;
  ASSERT_TRUE(owner().reduce.place_contribution(1, header, place));
  const std::uint32_t all = owner().resources.memory.receive_slabs().count();
  EXPECT_EQ(free_receive_slabs(), all - 2);
  owner().core.ops().fail(ops[0], {Errc::cancelled, 0, "enough"});
  owner().carry_out_all();
  EXPECT_EQ(owner().completed, std::vector<OpId>{ops[0]});
  EXPECT_EQ(free_receive_slabs(), all - 1);
  EXPECT_TRUE(std::holds_alternative<filling::Orphan>(filling()));
  owner().reduce.accept_contribution(1, header);
  EXPECT_EQ(free_receive_slabs(), all);
  owner().expect_all_memory_is_free();
}

class ReduceLegOfThree : public AllNodes {
 protected:
  ReduceLegOfThree() : AllNodes({.ranks = {{0, 1}, {2}, {3}}}) {}
};

TEST_F(ReduceLegOfThree, AllIsAddedInOneOrderAndAllMemoryComesBack) {
  const Spec spec{.tensor = 3, .count = 7 * kChunk + 1, .reduction = Reduction::average};
  const auto ops = begin(spec);
  nodes[0]->give(ops[0], std::vector<float>(spec.count, 1e8f), 0);
  nodes[0]->give(ops[0], std::vector<float>(spec.count, 2e8f), 1);
  nodes[1]->give(ops[1], std::vector<float>(spec.count, 3.0f));
  nodes[2]->give(ops[2], std::vector<float>(spec.count, -3e8f));
  run();
  std::vector<float> expected(spec.count);
  for (std::size_t i = 0; i < spec.count; ++i) {
    // The owner, then the nodes after it.
    const float by_node[] = {1e8f + 2e8f, 3.0f, -3e8f};
    const std::size_t owner = i / kChunk % 3;
    expected[i] = ((by_node[owner] + by_node[(owner + 1) % 3]) + by_node[(owner + 2) % 3]) / 4;
  }
  for (std::uint32_t index = 0; index < 3; ++index) {
    EXPECT_EQ(nodes[index]->got(ops[index]), expected) << index;
    EXPECT_EQ(nodes[index]->completed, std::vector<OpId>{ops[index]});
    nodes[index]->expect_all_memory_is_free();
  }
  EXPECT_EQ(nodes[0]->got(ops[0], 1), expected);
}

}  // namespace
}  // namespace tern::daemon::reduce_leg_test
