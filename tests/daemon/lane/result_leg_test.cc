#include "daemon/lane/result_leg.h"

#include <gtest/gtest.h>

#include "group_rig.h"
#include "wire/crc32c.h"

namespace tern::daemon::result_leg_test {
namespace {

using collective::ActionKind;
using collective::OpId;
using group_test::AllNodes;
using group_test::kChunk;
using group_test::Node;
using group_test::ramp;
using group_test::raw_block;
using group_test::Spec;
using wire::FrameKind;

// Of tensor 2, of two chunks, chunk 0 is node 0's.
class ResultLegTest : public AllNodes {
 protected:
  explicit ResultLegTest(const group_test::Shape& shape = {}) : AllNodes(shape) {}

  // All nodes have contributed to all chunks, and what came has been added: a finish is next.
  std::vector<OpId> begin_added(const Spec& spec, const LaneOp& lane_op = {}) {
    auto ops = begin(spec, lane_op);
    for (std::size_t i = 0; i < ops.size(); ++i) nodes[i]->give(ops[i], ramp(spec.count, 1, 1));
    for (auto& one : nodes) one->carry_out_next(ActionKind::grant);
    settle();
    for (auto& one : nodes) one->carry_out_next(ActionKind::contribute);
    settle_acks();
    for (auto& one : nodes) one->carry_out_next(ActionKind::begin_add);
    return ops;
  }
  // A result of node 0 for node 1, as its header says.
  wire::FrameHeader result(OpId op, std::uint32_t chunk, std::size_t bytes,
                           std::uint8_t flags = 0) {
    wire::FrameHeader header = node(0).core.block_header(wire::Leg::broadcast, op, chunk);
    header.payload_bytes = static_cast<std::uint32_t>(bytes);
    header.flags = flags;
    return header;
  }
  // Comes whole to node 1, without a link.
  bool arrive(const wire::FrameHeader& header, std::span<const std::byte> block) {
    LanePeer& peer = node(1).core.peer(0);
    peer.receiving = Receiving{};
    net::PayloadPlace place;
    if (!node(1).results.place(0, header, place)) return false;
    std::copy_n(block.begin(), place.prefix.size(), place.prefix.begin());
    std::copy_n(block.begin() + static_cast<std::ptrdiff_t>(place.prefix.size()), place.body.size(),
                place.body.begin());
    node(1).results.accept(0, header, place);
    peer.receiving = Receiving{};
    return true;
  }
  bool would_be_placed(const wire::FrameHeader& header) {
    net::PayloadPlace place;
    return node(1).results.place(0, header, place);
  }
};

// ---- Checksums of blocks

// Exclusive or of the payloads' checksums, begun with the chunks' numbers: alike on all nodes, and
// of all chunks.
TEST_F(ResultLegTest, NodesThatCompareBlocksSumUpTheSamePayloads) {
  const auto ops = begin_added({.count = 2 * kChunk});
  for (std::size_t i = 0; i < ops.size(); ++i) {
    nodes[i]->verifier.compare_blocks(ops[i]);
  }
  for (auto& one : nodes) one->carry_out_next(ActionKind::finish);
  settle_acks();
  const auto result = ramp(2 * kChunk, 2, 2);
  const std::span<const float> values(result);
  const std::uint32_t expected = wire::crc32c(std::as_bytes(values.first(kChunk)), 0) ^
                                 wire::crc32c(std::as_bytes(values.subspan(kChunk)), 1);
  EXPECT_EQ(node(0).verifier.blocks_crc(ops[0]), expected);
  EXPECT_EQ(node(1).verifier.blocks_crc(ops[1]), expected);
}

TEST_F(ResultLegTest, ADamagedPayloadHasAnotherChecksum) {
  const auto ops = begin_added({.count = 2 * kChunk});
  node(1).verifier.compare_blocks(ops[1]);
  const auto right = ramp(kChunk, 2, 2);
  auto damaged = right;
  damaged[3] += 1.0f;
  const auto block = raw_block(DType::f32, damaged);
  ASSERT_TRUE(arrive(result(ops[1], 0, block.size()), block));
  EXPECT_EQ(node(1).verifier.blocks_crc(ops[1]),
            wire::crc32c(std::as_bytes(std::span(damaged)), 0));
  EXPECT_NE(node(1).verifier.blocks_crc(ops[1]), wire::crc32c(std::as_bytes(std::span(right)), 0));
}

// ---- Results that are made here

TEST_F(ResultLegTest, APlainResultIsDeliveredHereAndSentToAllFromTheSum) {
  const auto ops = begin_added({.count = 2 * kChunk});
  node(0).carry_out_next(ActionKind::finish);
  const auto result = ramp(kChunk, 2, 2);
  auto here = node(0).got(ops[0]);
  here.resize(kChunk);
  EXPECT_EQ(here, result);
  EXPECT_EQ(node(0).job.held.accumulators, 1u);  // the frame's
  EXPECT_EQ(node(0).resources.memory.result_slabs().free_count(),
            node(0).resources.memory.result_slabs().count());
  settle_acks();
  EXPECT_EQ(node(0).job.held.accumulators, 0u);
  const auto frames = node(1).frames_of(FrameKind::result);
  ASSERT_EQ(frames.size(), 1u);
  EXPECT_EQ(frames[0].chunk, 0u);
  EXPECT_EQ(frames[0].flags, wire::kFlagRawBlock);
  EXPECT_EQ(node(1).frames.back().payload, raw_block(DType::f32, result));
  auto there = node(1).got(ops[1]);
  there.resize(kChunk);
  EXPECT_EQ(there, result);
}

TEST_F(ResultLegTest, ALossyResultIsTheSameEverywhere) {
  const Spec spec{.count = 2 * kChunk};
  const auto tensor = node(0).declare(spec, "bf16");
  const auto ops = begin_added(spec, Node::by_recipe_of(*tensor));
  node(0).carry_out_next(ActionKind::finish);
  SlabPool& slabs = node(0).resources.memory.result_slabs();
  EXPECT_EQ(slabs.free_count(), slabs.count() - 1);
  settle_acks();
  EXPECT_EQ(slabs.free_count(), slabs.count());
  auto here = node(0).got(ops[0]), there = node(1).got(ops[1]);
  here.resize(kChunk);
  there.resize(kChunk);
  EXPECT_EQ(here, there);
  EXPECT_EQ(here[100], 202.0f);
  const auto& block = node(1).frames.back();
  EXPECT_EQ(block.header.flags, 0u);
  EXPECT_EQ(block.payload.size(), wire::kBlockHeaderBytes + 2 * kChunk);
  // Its contribution to chunk 1 went before.
  EXPECT_EQ(node(0).core.lane_op(ops[0]).bytes_raw, 2 * kChunk * sizeof(float));
  EXPECT_EQ(node(0).core.lane_op(ops[0]).bytes_sent, 2 * block.payload.size());
}

TEST_F(ResultLegTest, WithOneScaleForAllNothingIsSentBeforeAllSumsAreThere) {
  const Spec spec{.count = 3 * kChunk};  // chunks 0 and 2 are node 0's
  const auto tensor = node(0).declare(spec, "ef(3lc:scale=tensor)");
  const auto of_other = node(1).declare(spec, "ef(3lc:scale=tensor)");
  const OpId op = node(0).begin(spec, Node::by_recipe_of(*tensor));
  const OpId theirs = node(1).begin(spec, Node::by_recipe_of(*of_other));
  node(0).core.ops().compress(op, true);
  node(1).core.ops().compress(theirs, true);
  node(0).give(op, std::vector<float>(3 * kChunk, 2.0f));
  node(1).give(theirs, std::vector<float>(3 * kChunk, 2.0f));
  node(0).carry_out_next(ActionKind::grant);
  settle();
  for (const ActionKind kind : {ActionKind::grant, ActionKind::scan, ActionKind::scan,
                                ActionKind::contribute, ActionKind::contribute}) {
    node(1).carry_out_next(kind);
  }
  settle_acks();
  node(0).carry_out_next(ActionKind::scan);
  // Of both chunks.
  node(0).carry_out_next(ActionKind::begin_add);
  node(0).carry_out_next(ActionKind::finish);
  node(0).carry_out_next(ActionKind::begin_add);
  node(0).carry_out_next(ActionKind::finish);
  EXPECT_EQ(node(0).resources.memory.frames_in_flight(), 0u);
  settle();
  EXPECT_TRUE(node(1).frames_of(FrameKind::result).empty());
  run();
  EXPECT_EQ(node(1).frames_of(FrameKind::result).size(), 2u);
  EXPECT_EQ(node(1).got(theirs), std::vector<float>(3 * kChunk, 4.0f));
  EXPECT_EQ(node(0).got(op), node(1).got(theirs));
  node(0).expect_all_memory_is_free();
}

TEST_F(ResultLegTest, ARootsElementsGoToAllFromItsInput) {
  const Spec spec{.count = kChunk + 3, .kind = shm::OpKind::broadcast, .root = 0};
  const auto ops = begin(spec);
  node(0).give(ops[0], ramp(spec.count, 7, 1));
  node(0).carry_out_next(ActionKind::publish);
  node(0).carry_out_next(ActionKind::publish);
  EXPECT_EQ(node(0).core.lane_op(ops[0]).pins, 2u);
  settle_acks();
  EXPECT_EQ(node(0).core.lane_op(ops[0]).pins, 0u);
  EXPECT_EQ(node(0).got(ops[0]), ramp(spec.count, 7, 1));
  EXPECT_EQ(node(1).got(ops[1]), ramp(spec.count, 7, 1));
  node(0).carry_out_next(ActionKind::complete);
  node(1).carry_out_next(ActionKind::complete);
  node(0).expect_all_memory_is_free();
}

class ResultLegOfThree : public ResultLegTest {
 protected:
  ResultLegOfThree() : ResultLegTest({.ranks = {{0}, {1}, {2}}}) {}
};

TEST_F(ResultLegOfThree, EveryReceiverCounts) {
  const Spec spec{.count = 10, .kind = shm::OpKind::broadcast, .root = 0};
  const auto ops = begin(spec);
  node(0).core.peer(1).link->close();
  node(0).carry_out_next(ActionKind::publish);
  EXPECT_EQ(node(0).core.lane_op(ops[0]).pins, 1u);
  EXPECT_EQ(node(0).core.lane_op(ops[0]).bytes_raw, 20 * sizeof(float));
  settle_acks();
  EXPECT_EQ(node(0).core.lane_op(ops[0]).pins, 0u);
}

// Node 0 has the root. Of two chunks, the others own one each.
class ResultLegOfRelays : public ResultLegTest {
 protected:
  ResultLegOfRelays()
      : ResultLegTest({.ranks = {{0}, {1}, {2}}, .rooted_form = collective::RootedForm::relayed}) {}

  static constexpr Spec kSpec{
      .count = 2 * kChunk, .role = Role::exact, .kind = shm::OpKind::broadcast, .root = 0};
};

TEST_F(ResultLegOfRelays, AChunkIsSentOnFromTheOutputItHasComeTo) {
  const auto ops = begin(kSpec);
  const auto values = ramp(kSpec.count, 7, 1);
  node(0).give(ops[0], values);
  node(0).carry_out_next(ActionKind::publish);
  node(0).carry_out_next(ActionKind::publish);
  EXPECT_EQ(node(0).core.lane_op(ops[0]).bytes_raw, kSpec.count * sizeof(float)) << "each once";
  settle_acks();
  for (const std::uint32_t relay : {1u, 2u}) {
    const auto action = node(relay).next();
    ASSERT_EQ(action.kind, ActionKind::send_on);
    const auto held = node(relay).results.held(action);
    const std::uint32_t number = node(relay).core.op(ops[relay]).chunks.chunk(relay, action.index);
    EXPECT_EQ(held.data(), host_bytes(node(relay).rank(ops[relay]).output).data() +
                               number * kChunk * sizeof(float));
    EXPECT_EQ(held.size(), kChunk * sizeof(float));
    node(relay).carry_out(action);
    EXPECT_EQ(node(relay).core.lane_op(ops[relay]).pins, 1u);
    EXPECT_EQ(node(relay).core.lane_op(ops[relay]).bytes_raw, kChunk * sizeof(float));
  }
  settle_acks();
  for (const std::uint32_t one : {0u, 1u, 2u}) {
    EXPECT_EQ(node(one).got(ops[one]), values) << "node " << one;
    EXPECT_EQ(node(one).frames_of(FrameKind::result).size(), one == 0 ? 0u : 2u);
    EXPECT_EQ(node(one).core.lane_op(ops[one]).pins, 0u);
    node(one).carry_out_next(ActionKind::complete);
    node(one).expect_all_memory_is_free();
  }
}

// The receivers of what is sent on are the others but the root, and who is gone counts as having
// it.
TEST_F(ResultLegOfRelays, WhoIsGoneKeepsNothing) {
  const auto ops = begin(kSpec);
  node(0).give(ops[0], ramp(kSpec.count, 7, 1));
  node(0).carry_out_next(ActionKind::publish);
  node(0).carry_out_next(ActionKind::publish);
  settle_acks();
  node(1).core.peer(2).link->close();
  node(1).carry_out_next(ActionKind::send_on);
  settle_acks();
  EXPECT_EQ(node(1).core.lane_op(ops[1]).pins, 0u);
}

// ---- Results of other nodes

TEST_F(ResultLegTest, PlainElementsGoStraightToTheOutput) {
  const auto ops = begin({.count = 2 * kChunk});
  const std::size_t bytes = wire::kBlockHeaderBytes + kChunk * sizeof(float);
  net::PayloadPlace place;
  ASSERT_TRUE(node(1).results.place(0, result(ops[0], 0, bytes, wire::kFlagRawBlock), place));
  EXPECT_EQ(place.prefix.size(), wire::kBlockHeaderBytes);
  EXPECT_EQ(place.body.data(), host_bytes(node(1).rank(ops[1]).output).data());
  EXPECT_EQ(place.body.size(), kChunk * sizeof(float));
  EXPECT_EQ(node(1).core.lane_op(ops[1]).pins, 1u);
}

TEST_F(ResultLegTest, WhatIsNotAsLongAsTheElementsDoesNot) {
  const auto ops = begin({.count = 2 * kChunk});
  const std::size_t bytes = wire::kBlockHeaderBytes + kChunk * sizeof(float) - 4;
  net::PayloadPlace place;
  ASSERT_TRUE(node(1).results.place(0, result(ops[0], 0, bytes, wire::kFlagRawBlock), place));
  EXPECT_TRUE(place.prefix.empty());
  EXPECT_EQ(place.body.size(), bytes);
  const auto output = host_bytes(node(1).rank(ops[1]).output);
  EXPECT_FALSE(place.body.data() >= output.data() &&
               place.body.data() < output.data() + output.size());
}

TEST_F(ResultLegTest, AResultThatIsNotThePeersToSendIsABreach) {
  const Spec spec{.count = 2 * kChunk};
  const OpId known = node(0).begin(spec);
  const auto block = raw_block(DType::f32, ramp(kChunk, 1, 1));
  const auto header = result(known, 0, block.size());
  EXPECT_FALSE(would_be_placed(header));  // of an op that nobody here knows
  const OpId op = node(1).begin(spec);
  EXPECT_FALSE(would_be_placed(result(known, 1, block.size())));  // our own chunk
  EXPECT_FALSE(would_be_placed(result(known, 2, block.size())));  // there is none
  EXPECT_FALSE(would_be_placed(result(known, 0, wire::kBlockHeaderBytes - 1)));
  EXPECT_FALSE(would_be_placed(result(known, 0, group_test::small_lane().block_bytes() + 1)));
  EXPECT_EQ(node(1).core.lane_op(op).pins, 0u);
  EXPECT_TRUE(arrive(header, block));
  EXPECT_FALSE(would_be_placed(header));  // twice
}

TEST_F(ResultLegTest, ABlockThatMakesNoSenseFailsTheOpAndIsCounted) {
  const auto ops = begin({.count = 2 * kChunk});
  const auto block = raw_block(DType::f32, ramp(kChunk - 1, 1, 1));
  ASSERT_TRUE(arrive(result(ops[0], 0, block.size()), block));
  const collective::Op& op = node(1).core.op(ops[1]);
  EXPECT_TRUE(op.failed());
  EXPECT_EQ(op.status, Errc::corrupt_data);
  EXPECT_STREQ(op.text, "result of node 0 for chunk 0: the block's sizes differ from the chunk's");
  EXPECT_EQ(node(1).resources.counters->bad_blocks.load(), 1u);
  EXPECT_EQ(node(1).core.lane_op(ops[1]).pins, 0u);
  EXPECT_EQ(op.in_flight, 0u);
}

TEST_F(ResultLegTest, ABadHeaderBeforePlainElementsFailsTheOp) {
  const auto ops = begin({.count = 2 * kChunk});
  auto block = raw_block(DType::f32, ramp(kChunk, 1, 1));
  block[0] = std::byte{0xff};
  ASSERT_TRUE(arrive(result(ops[0], 0, block.size(), wire::kFlagRawBlock), block));
  EXPECT_EQ(node(1).core.op(ops[1]).status, Errc::corrupt_data);
  EXPECT_EQ(node(1).resources.counters->bad_blocks.load(), 1u);
}

TEST_F(ResultLegTest, AResultThatComesAfterTheFailureIsNotDelivered) {
  const auto ops = begin({.count = 2 * kChunk});
  const auto block = raw_block(DType::f32, ramp(kChunk, 1, 1));
  LanePeer& peer = node(1).core.peer(0);
  net::PayloadPlace place;
  const auto header = result(ops[0], 0, block.size());
  ASSERT_TRUE(node(1).results.place(0, header, place));
  node(1).core.ops().fail(ops[1], {Errc::cancelled, 1, "enough"});
  std::copy(block.begin(), block.end(), place.body.begin());
  node(1).results.accept(0, header, place);
  peer.receiving = Receiving{};
  EXPECT_EQ(node(1).got(ops[1]), std::vector<float>(2 * kChunk, 0.0f));
  EXPECT_EQ(node(1).core.op(ops[1]).status, Errc::cancelled);
  EXPECT_EQ(node(1).core.lane_op(ops[1]).pins, 0u);
  // And one that is announced later is thrown away.
  ASSERT_TRUE(node(1).results.place(0, header, place = {}));
  EXPECT_TRUE(place.body.empty());
}

}  // namespace
}  // namespace tern::daemon::result_leg_test
