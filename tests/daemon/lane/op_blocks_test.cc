#include "daemon/lane/op_blocks.h"

#include <gtest/gtest.h>

#include "group_rig.h"

namespace tern::daemon::op_blocks_test {
namespace {

using group_test::kChunk;
using group_test::OneNode;

class OpBlocksTest : public OneNode {
 protected:
  OpBlocks& blocks() { return node.codec.blocks(); }
  std::vector<TraceEvent> traced() { return node.resources.trace.read(0, 10).events; }
};

TEST_F(OpBlocksTest, TheLastChunkIsAsLongAsWhatIsLeft) {
  const collective::OpId op = node.begin({.count = kChunk + 3});
  EXPECT_EQ(blocks().part(op, 0).begin, 0u);
  EXPECT_EQ(blocks().part(op, 0).elements, kChunk);
  EXPECT_EQ(blocks().part(op, 1).begin, kChunk);
  EXPECT_EQ(blocks().part(op, 1).elements, 3u);
  EXPECT_EQ(blocks().whole(op).elements, kChunk + 3);
}

TEST_F(OpBlocksTest, AChunkHasMoreElementsOfASmallerType) {
  const collective::OpId op = node.begin({.count = 4 * kChunk, .dtype = DType::f16});
  EXPECT_EQ(blocks().part(op, 1).begin, 2 * kChunk);
  EXPECT_EQ(blocks().bytes(op, blocks().part(op, 1)), 2 * kChunk * 2);
}

TEST_F(OpBlocksTest, AnOpIsWhatItsAnnouncementSays) {
  const collective::OpId op =
      node.begin({.tensor = 8, .dtype = DType::bf16, .reduction = Reduction::max, .use = 6});
  EXPECT_EQ(blocks().dtype(op), DType::bf16);
  EXPECT_EQ(blocks().reduction(op), Reduction::max);
  EXPECT_EQ(blocks().sequence(op), 6u);
}

TEST_F(OpBlocksTest, WhatAnOpHasCostIsForgottenWithIt) {
  const collective::OpId first = node.begin({.tensor = 2});
  const collective::OpId second = node.begin({.tensor = 4});
  blocks().stats(first).encode_ns = 10;
  blocks().stats(second).encode_ns = 20;
  blocks().forget(first);
  EXPECT_EQ(blocks().stats(first).encode_ns, 0u);
  EXPECT_EQ(blocks().stats(second).encode_ns, 20u);
}

TEST_F(OpBlocksTest, TheLaneKnowsWhatItsBlocksHaveCostInThisTurn) {
  const collective::OpId op = node.begin({.tensor = 2});
  const CodecRoom::Spent& spent = node.resources.codec.spent;
  blocks().add_encode(op, 1'000'000);
  blocks().add_decode(op, 2'999'999);
  EXPECT_EQ(blocks().stats(op).encode_ns, 1'000'000u);
  EXPECT_EQ(blocks().stats(op).decode_ns, 2'999'999u);
  EXPECT_EQ(spent.longest_ns, 2'999'999u);
  EXPECT_TRUE(spent.leaves_time());
  blocks().add_encode(op, 1);
  EXPECT_FALSE(spent.leaves_time());
}

TEST_F(OpBlocksTest, ScratchHoldsTwoChunksOfTheSmallestFloatsWidened) {
  const auto first = blocks().scratch_floats(0, 2 * kChunk);
  const auto second = blocks().scratch_floats(1, 2 * kChunk);
  std::fill(first.begin(), first.end(), 1.0f);
  std::fill(second.begin(), second.end(), 2.0f);
  EXPECT_EQ(first.front(), 1.0f);
  EXPECT_EQ(first.back(), 1.0f);
  EXPECT_EQ(second.front(), 2.0f);
}

TEST_F(OpBlocksTest, NothingIsTracedWhileTracingIsOff) {
  const collective::OpId op = node.begin({});
  BlockRequest request;
  request.op = op;
  blocks().trace(TraceKind::encode, request, {}, {1, 2});
  node.resources.trace.start();
  EXPECT_TRUE(traced().empty());
}

TEST_F(OpBlocksTest, AnEncodedBlockIsTracedAsOursAndADecodedOneAsItsSenders) {
  const collective::OpId op = node.begin({.tensor = 2, .count = 2 * kChunk, .use = 7});
  node.resources.trace.start();
  BlockRequest request;
  request.op = op;
  request.number = 1;
  request.node = 1;
  wire::BlockHeader header;
  header.codec = static_cast<std::uint8_t>(wire::CodecId::bf16);
  header.elements = kChunk;
  header.payload_bytes = 2 * kChunk;
  blocks().trace(TraceKind::encode, request, header, {3, 5});
  blocks().trace(TraceKind::decode, request, header, {6, 9});
  const auto events = traced();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].kind, TraceKind::encode);
  EXPECT_EQ(events[0].node, 0u);
  EXPECT_EQ(events[0].begin_ns, 3u);
  EXPECT_EQ(events[0].end_ns, 5u);
  EXPECT_EQ(events[0].group, node.core.setup().number);
  EXPECT_EQ(events[0].tensor, 2u);
  EXPECT_EQ(events[0].sequence, 7u);
  EXPECT_EQ(events[0].chunk, 1u);
  EXPECT_EQ(events[0].bytes_raw, kChunk * sizeof(float));
  EXPECT_EQ(events[0].bytes, wire::kBlockHeaderBytes + 2 * kChunk);
  EXPECT_EQ(events[0].codec, static_cast<std::uint8_t>(wire::CodecId::bf16));
  EXPECT_EQ(events[1].kind, TraceKind::decode);
  EXPECT_EQ(events[1].node, 1u);
}

}  // namespace
}  // namespace tern::daemon::op_blocks_test
