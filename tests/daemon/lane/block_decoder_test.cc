#include "daemon/lane/block_decoder.h"

#include <gtest/gtest.h>

#include <random>

#include "base/half.h"
#include "group_rig.h"

namespace tern::daemon::block_decoder_test {
namespace {

using collective::EagerForm, collective::OpId;
using group_test::block_of;
using group_test::decoded;
using group_test::kChunk;
using group_test::lossy_block;
using group_test::Memory;
using group_test::Node;
using group_test::OneNode;
using group_test::ramp;
using group_test::raw_block;
using group_test::Spec;

using Bytes = std::vector<std::byte>;

// Blocks are of node 1.
class BlockDecoderTest : public OneNode {
 protected:
  explicit BlockDecoderTest(const group_test::Shape& shape = {}, std::uint32_t self = 0)
      : OneNode(shape, self) {}

  static BlockRequest from_peer(const Memory& block, std::uint32_t number = 0) {
    BlockRequest request;
    request.node = 1;
    request.number = number;
    request.block = block.operand();
    return request;
  }
  static BlockRequest in_place(const Memory& header) {
    BlockRequest request = from_peer(header);
    request.in_place = true;
    return request;
  }

  const char* contributed(BlockVerb verb, OpId op, const Bytes& block) {
    const Memory bytes(block);
    BlockRequest request = from_peer(bytes);
    request.sum = sum.operand();
    return perform(verb, op, request).problem;
  }
  const char* delivered(OpId op, const Bytes& block) {
    const Memory bytes(block);
    return perform(BlockVerb::deliver, op, from_peer(bytes)).problem;
  }
  void begin_sum(OpId op) {
    BlockRequest request;
    request.sum = sum.operand();
    perform(BlockVerb::begin, op, request);
  }
  void expect_like_begin_and_add(OpId op, const Bytes& block) {
    begin_sum(op);
    ASSERT_EQ(contributed(BlockVerb::add, op, block), nullptr);
    const auto in_two = sum.as<std::uint32_t>();
    std::fill(sum.bytes().begin(), sum.bytes().end(), std::byte{0xee});
    ASSERT_EQ(contributed(BlockVerb::begin_add, op, block), nullptr);
    EXPECT_EQ(sum.as<std::uint32_t>(), in_two);
  }
  Bytes lossless_block(const std::vector<float>& values) {
    wire::BlockHeader header;
    Bytes payload(values.size() * sizeof(float));
    const Bytes input(std::as_bytes(std::span(values)).begin(),
                      std::as_bytes(std::span(values)).end());
    const auto bytes =
        codec::encode_lossless(group_test::recipe_of("lossless"), {DType::f32, input, {}, 1},
                               {payload, header}, workspace);
    EXPECT_GT(bytes, 0u);
    return block_of(header, std::span(payload).first(bytes));
  }

  codec::Workspace workspace;
  Memory sum{kChunk * sizeof(float)};
  const std::vector<float> theirs = ramp(kChunk, 0.1f, 0.37f);
};

class BlockDecoderOfTwoRanks : public BlockDecoderTest {
 protected:
  BlockDecoderOfTwoRanks() : BlockDecoderTest({.ranks = {{0, 1}, {2}}}) {}
};

// ---- Contributions

TEST_F(BlockDecoderTest, ARawBlockIsAddedToTheSum) {
  const OpId op = node.begin({});
  node.give(op, ramp(kChunk, 1, 1));
  begin_sum(op);
  EXPECT_EQ(sum.as<float>(), ramp(kChunk, 1, 1));
  EXPECT_EQ(contributed(BlockVerb::add, op, raw_block(DType::f32, ramp(kChunk, 2, 1))), nullptr);
  EXPECT_EQ(sum.as<float>(), ramp(kChunk, 3, 2));
}

TEST_F(BlockDecoderTest, TheReductionIsTheOps) {
  const OpId op = node.begin({.count = 3, .reduction = Reduction::max});
  node.give<float>(op, {1, 5, -4});
  begin_sum(op);
  EXPECT_EQ(contributed(BlockVerb::add, op, raw_block<float>(DType::f32, {2, 3, -5})), nullptr);
  auto largest = sum.as<float>();
  largest.resize(3);
  EXPECT_EQ(largest, (std::vector<float>{2, 5, -4}));
}

TEST_F(BlockDecoderTest, ALossyOrLosslessBlockAddsWhatItStandsFor) {
  const Spec spec{};
  const auto tensor = node.declare(spec, "ef(3lc)");
  const OpId op = node.begin(spec, Node::by_recipe_of(*tensor));
  const auto ours = ramp(kChunk, -5, 0.25f);
  node.give(op, ours);
  std::vector<float> residual(kChunk, 0.0f);
  // A block says itself how it is decoded, whatever is declared here.
  for (const Bytes& block : {lossy_block("bf16", theirs), lossy_block("none(int:bits=8)", theirs),
                             lossy_block("ef(3lc)", theirs, residual.data())}) {
    begin_sum(op);
    ASSERT_EQ(contributed(BlockVerb::add, op, block), nullptr);
    const auto meant = decoded(block, kChunk);
    for (std::size_t i = 0; i < kChunk; ++i) {
      ASSERT_EQ(sum.as<float>()[i], ours[i] + meant[i]) << i;
    }
  }
  begin_sum(op);
  ASSERT_EQ(contributed(BlockVerb::add, op, lossless_block(theirs)), nullptr);
  EXPECT_EQ(sum.as<float>()[7], ours[7] + theirs[7]);
}

TEST_F(BlockDecoderTest, ToBeginAndAddAtOnceIsTheSame) {
  const Spec spec{};
  const auto tensor = node.declare(spec, "bf16");
  const OpId op = node.begin(spec, Node::by_recipe_of(*tensor));
  node.give(op, ramp(kChunk, 1e-3f, 1.7f));
  expect_like_begin_and_add(op, raw_block(DType::f32, theirs));
  expect_like_begin_and_add(op, lossless_block(theirs));
  expect_like_begin_and_add(op, lossy_block("bf16", theirs));
  node.change_rank(op, [](OpRank& rank) { rank.prescale = 0.3f; });
  expect_like_begin_and_add(op, raw_block(DType::f32, theirs));
}

TEST_F(BlockDecoderOfTwoRanks, ToBeginAndAddAtOnceIsTheSame) {
  const OpId op = node.begin({});
  node.give(op, ramp(kChunk, 1e-3f, 1.7f), 0);
  node.give(op, ramp(kChunk, 3e5f, 1.1f), 1);
  expect_like_begin_and_add(op, raw_block(DType::f32, theirs));
  EXPECT_EQ(sum.as<float>()[0], (1e-3f + 3e5f) + theirs[0]);
}

TEST_F(BlockDecoderTest, HalvesAreAddedInFloats) {
  const OpId op = node.begin({.count = 1, .dtype = DType::bf16});
  node.give<std::uint16_t>(op, {f32_to_bf16(256)});
  for (const BlockVerb verb : {BlockVerb::begin_add, BlockVerb::add}) {
    ASSERT_EQ(contributed(verb, op, raw_block<std::uint16_t>(DType::bf16, {f32_to_bf16(1)})),
              nullptr);
  }
  EXPECT_EQ(sum.as<float>()[0], 258.0f);  // each 1 alone would be rounded away
}

// ---- Blocks that make no sense

TEST_F(BlockDecoderTest, ABlockOfAnotherLengthOrTypeIsAProblem) {
  const OpId op = node.begin({});
  const Bytes sound = raw_block(DType::f32, theirs);
  Bytes longer = sound, cut = sound;
  longer.resize(longer.size() + 4);
  cut.resize(cut.size() - 4);
  const std::vector<Bytes> bad = {
      raw_block(DType::f32, ramp(kChunk - 1, 1, 1)),
      raw_block(DType::f32, ramp(kChunk + 1, 1, 1)),
      raw_block(DType::i32, theirs),
      raw_block(DType::bf16, std::vector<std::uint16_t>(kChunk)),
      raw_block(DType::f64, std::vector<double>(kChunk)),
      longer,
      cut,
      Bytes(sound.begin(), sound.begin() + wire::kBlockHeaderBytes - 1),
      Bytes(wire::kBlockHeaderBytes, std::byte{0xff}),
  };
  begin_sum(op);
  for (std::size_t i = 0; i < bad.size(); ++i) {
    for (const char* const problem :
         {contributed(BlockVerb::add, op, bad[i]), contributed(BlockVerb::begin_add, op, bad[i]),
          delivered(op, bad[i])}) {
      ASSERT_NE(problem, nullptr) << i;
      EXPECT_NE(std::string(problem), "") << i;
    }
  }
  EXPECT_EQ(node.got(op), std::vector<float>(kChunk, 0.0f));
}

TEST_F(BlockDecoderTest, WhateverTheBytesAreTheyAreABlockOrAProblem) {
  const Spec spec{};
  const auto tensor = node.declare(spec, "ef(3lc)");
  const OpId op = node.begin(spec, Node::by_recipe_of(*tensor));
  std::vector<float> residual(kChunk, 0.0f);
  const std::vector<Bytes> sound = {lossy_block("ef(3lc)", theirs, residual.data()),
                                    lossy_block("none(int:bits=4+huffman)", theirs),
                                    lossless_block(theirs)};
  constexpr std::uint64_t kSeed = 20;
  std::mt19937_64 random(kSeed);
  int refused = 0;
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE("seed " + std::to_string(kSeed) + ", round " + std::to_string(round));
    Bytes block = sound[static_cast<std::size_t>(round) % sound.size()];
    const std::size_t cut = wire::kBlockHeaderBytes + random() % 40;
    if (round % 2 == 0) block.resize(std::min(cut, block.size()));
    block[random() % block.size()] ^= static_cast<std::byte>(1 + random() % 255);
    if (contributed(BlockVerb::begin_add, op, block) != nullptr) ++refused;
    if (delivered(op, block) != nullptr) ++refused;
  }
  EXPECT_GT(refused, 300);  // what is cut is refused by both
}

TEST_F(BlockDecoderTest, ALossyBlockIsRefusedWhereTheOpMustBeExact) {
  const Bytes block = lossy_block("bf16", theirs);
  const auto expect_refused = [&](const Spec& spec, TensorState* tensor) {
    LaneOp lane_op;
    lane_op.tensor = tensor;
    const OpId op = node.begin(spec, lane_op);
    node.give(op, ramp(kChunk, 1, 1));
    for (const BlockVerb verb : {BlockVerb::add, BlockVerb::begin_add}) {
      EXPECT_STREQ(contributed(verb, op, block),
                   "a lossy block for an operation that must be exact");
    }
    return op;
  };
  Spec spec{.tensor = 2};
  const auto exempt = node.declare(spec, "bf16");
  exempt->exempt = true;
  const OpId of_exempt = expect_refused(spec, exempt.get());
  EXPECT_STREQ(delivered(of_exempt, block), "a lossy block for an exempt tensor");
  spec = {.tensor = 4, .role = Role::weights};
  const auto weights = node.declare(spec, "raw");
  EXPECT_NE(delivered(expect_refused(spec, weights.get()), block), nullptr);
  spec = {.tensor = 6, .reduction = Reduction::max};
  const auto largest = node.declare(spec, "bf16");
  expect_refused(spec, largest.get());
  expect_refused({.tensor = 8}, nullptr);
}

// Shares have other chunks than those that a shift is kept of.
TEST_F(BlockDecoderTest, AMovedLossyBlockIsForADeltaWithoutAShift) {
  const Bytes block = lossy_block("bf16", theirs);
  struct Case {
    Spec spec;
    const char* recipe;
    bool accepted;
  };
  Spec spec{.tensor = 2, .role = Role::delta, .kind = shm::OpKind::broadcast, .root = 1};
  std::vector<Case> cases{{spec, "3lc:s=1", true}};
  spec.tensor = 4;
  cases.push_back({spec, "diana(qsgd:levels=4)", false});
  spec.tensor = 6;
  spec.role = Role::gradient;
  cases.push_back({spec, "3lc:s=1", false});
  spec.tensor = 8;
  spec.role = Role::weights;
  cases.push_back({spec, "raw", false});
  for (const Case& one : cases) {
    const auto tensor = node.declare(one.spec, one.recipe);
    const OpId op = node.begin(one.spec, Node::by_recipe_of(*tensor));
    const char* const problem = delivered(op, block);
    if (one.accepted) {
      EXPECT_EQ(problem, nullptr);
      EXPECT_EQ(node.got(op), decoded(block, kChunk));
    } else {
      EXPECT_STREQ(problem, "a lossy block for an operation that must be exact") << one.recipe;
    }
  }
}

// ---- Results

TEST_F(BlockDecoderOfTwoRanks, ResultsGoToEveryRank) {
  const Spec spec{.count = kChunk + 4};
  const auto tensor = node.declare(spec, "bf16");
  const OpId op = node.begin(spec, Node::by_recipe_of(*tensor));
  ASSERT_EQ(delivered(op, lossy_block("bf16", theirs)), nullptr);
  Memory second(raw_block<float>(DType::f32, {1, 2, 3, 4}));
  const BlockCompletion done = perform(BlockVerb::deliver, op, from_peer(second, 1));
  ASSERT_EQ(done.problem, nullptr);
  EXPECT_EQ(done.header.elements, 4u);
  auto expected = decoded(lossy_block("bf16", theirs), kChunk);
  expected.insert(expected.end(), {1, 2, 3, 4});
  EXPECT_EQ(node.got(op, 0), expected);
  EXPECT_EQ(node.got(op, 1), expected);
}

TEST_F(BlockDecoderTest, ALossyResultIsRoundedToTheTensorsType) {
  const Spec spec{.dtype = DType::bf16};
  const auto tensor = node.declare(spec, "none(int:bits=8)");
  const OpId op = node.begin(spec, Node::by_recipe_of(*tensor));
  const Bytes block = lossy_block("none(int:bits=8)", theirs);
  ASSERT_EQ(delivered(op, block), nullptr);
  const auto meant = decoded(block, kChunk);
  const auto got = node.got<std::uint16_t>(op);
  for (std::size_t i = 0; i < kChunk; ++i) ASSERT_EQ(got[i], f32_to_bf16(meant[i])) << i;
}

TEST_F(BlockDecoderOfTwoRanks, WhatLiesInTheFirstOutputAlreadyGoesToTheOther) {
  const OpId op = node.begin({.count = 4});
  const std::vector<float> values = {1, 2, 3, 4};
  std::memcpy(host_bytes(node.rank(op).output).data(), values.data(), 4 * sizeof(float));
  Bytes header = raw_block(DType::f32, values);
  header.resize(wire::kBlockHeaderBytes);
  const Memory sound(header);
  EXPECT_EQ(perform(BlockVerb::deliver, op, in_place(sound)).problem, nullptr);
  EXPECT_EQ(node.got(op, 1), values);
}

TEST_F(BlockDecoderTest, AHeaderMustBeThatOfTheElementsThatCameWithIt) {
  const OpId op = node.begin({.count = 4});
  wire::BlockHeader lossy;
  ASSERT_EQ(wire::parse_block_header(lossy_block("bf16", {1, 2, 3, 4}), lossy),
            wire::BlockError::none);
  wire::BlockHeader of_the_future = codec::raw_block_header(DType::f32, 4, false, 1);
  of_the_future.version = 99;
  for (const wire::BlockHeader& header :
       {lossy, codec::raw_block_header(DType::f32, 3, false, 1),
        codec::raw_block_header(DType::i32, 4, false, 1), of_the_future}) {
    Bytes bytes(wire::kBlockHeaderBytes);
    wire::write_block_header(header, std::span(bytes).first<wire::kBlockHeaderBytes>());
    const Memory block(bytes);
    EXPECT_NE(perform(BlockVerb::deliver, op, in_place(block)).problem, nullptr);
  }
}

// ---- Streams

TEST_F(BlockDecoderTest, ADifferenceIsToTheValueBeforeAndAGapIsNoticed) {
  const Spec spec{.role = Role::weights, .kind = shm::OpKind::broadcast, .root = 1};
  const auto tensor = node.declare(spec, "xordelta");
  const OpId op = node.begin(spec, Node::by_recipe_of(*tensor));
  Bytes last(kChunk * sizeof(float));
  auto next_block = [&, step = std::uint64_t{0}](const std::vector<float>& values) mutable {
    wire::BlockHeader header;
    Bytes payload(kChunk * sizeof(float));
    const Memory input(values);
    const auto bytes = codec::encode_lossless(
        tensor->declared.recipe, {DType::f32, host_bytes(input.operand()), last, step++},
        {payload, header}, workspace);
    EXPECT_GT(bytes, 0u);
    return block_of(header, std::span(payload).first(bytes));
  };
  const Bytes first = next_block(ramp(kChunk, 1, 0.001f));
  const Bytes second = next_block(ramp(kChunk, 1.5f, 0.001f));
  const Bytes third = next_block(ramp(kChunk, 1.25f, 0.001f));
  ASSERT_EQ(delivered(op, first), nullptr);
  EXPECT_EQ(node.got(op), ramp(kChunk, 1, 0.001f));
  EXPECT_STREQ(delivered(op, third),
               codec::decode_status_name(codec::DecodeStatus::state_gap).data());
  ASSERT_EQ(delivered(op, second), nullptr);
  ASSERT_EQ(delivered(op, third), nullptr);
  EXPECT_EQ(node.got(op), ramp(kChunk, 1.25f, 0.001f));
  // The first of a stream begins it anew.
  ASSERT_EQ(delivered(op, first), nullptr);
  EXPECT_EQ(node.got(op), ramp(kChunk, 1, 0.001f));

  const auto other = node.declare(spec, "lossless");
  node.change_op(op, [&](LaneOp& data) { data.tensor = other.get(); });
  EXPECT_STREQ(delivered(op, first), "a difference to a value that nobody keeps");
}

TEST_F(BlockDecoderTest, AShiftMovesAsItDoesAtTheSender) {
  const Spec spec{.tensor = 1};
  Node sender(world, {}, 1);
  const auto tensor = node.declare(spec, "ef21(int:bits=4)");
  const auto at_sender = sender.declare(spec, "ef21(int:bits=4)");
  const OpId op = node.begin(spec, Node::by_recipe_of(*tensor));
  const OpId sent = sender.begin(spec, Node::by_recipe_of(*at_sender));
  for (int step = 0; step < 3; ++step) {
    Memory room(group_test::small_lane().block_bytes());
    Memory result(ramp(kChunk, static_cast<float>(step), 0.1f));
    BlockRequest request;
    request.verb = BlockVerb::finish;
    request.op = sent;
    request.node = 1;
    request.recipe = &at_sender->declared.recipe;
    request.block = room.operand();
    request.sum = result.operand();
    const BlockCompletion made = sender.codec.perform(request);
    ASSERT_EQ(made.form, BlockForm::encoded);
    const auto block = room.bytes().first(made.bytes);
    ASSERT_EQ(delivered(op, {block.begin(), block.end()}), nullptr);
    EXPECT_EQ(node.got(op), sender.got(sent)) << step;
  }
  EXPECT_NE(node.got(op)[0], 0.0f);
  // Who keeps no shift reads the same kind of block as the values themselves.
  const auto without = node.declare(spec, "raw");
  node.change_op(op, [&](LaneOp& data) { data.tensor = without.get(); });
  const auto block = lossy_block("none(int:bits=4)", theirs);
  ASSERT_EQ(delivered(op, block), nullptr);
  EXPECT_EQ(node.got(op), decoded(block, kChunk));
}

// ---- Eager values

class BlockDecoderOfEagerOps : public BlockDecoderTest {
 protected:
  BlockDecoderOfEagerOps() : BlockDecoderTest({{{1}, {0}, {2}}, 64, EagerForm::blocks}, 2) {}
  void keep_block(OpId op, std::uint32_t from, const std::vector<std::byte>& block) {
    const std::uint32_t slab = node.eager.take(from);
    std::copy(block.begin(), block.end(), host_bytes(node.eager.operand(from, slab)).data());
    node.eager.keep(op, from, {slab, static_cast<std::uint32_t>(block.size()), true});
  }
  BlockCompletion reduced(OpId op) {
    BlockRequest request;
    request.verb = BlockVerb::reduce;
    request.op = op;
    return node.codec.perform(request);
  }
  void keep(OpId op, std::uint32_t from, const std::vector<float>& values) {
    const std::uint32_t slab = node.eager.take(from);
    std::memcpy(host_bytes(node.eager.operand(from, slab)).data(), values.data(),
                values.size() * sizeof(float));
    const auto bytes = static_cast<std::uint32_t>(values.size() * sizeof(float));
    node.eager.keep(op, from, {slab, bytes, false});
  }
};

TEST_F(BlockDecoderOfEagerOps, AreAddedInTheOrderOfTheNodes) {
  const Spec spec{.count = 2, .reduction = Reduction::average};
  const OpId op = node.submit(spec);
  node.hear(0, spec, 8);
  node.hear(1, spec, 8);
  keep(op, 0, {1e8f, 3});
  keep(op, 1, {-1e8f, 6});
  node.give<float>(op, {3, 9});
  perform(BlockVerb::reduce, op, {});
  EXPECT_EQ(node.got(op), (std::vector<float>{1, 6}));  // our 3 first would be rounded away
}

TEST_F(BlockDecoderOfEagerOps, AreAddedWhereSomeAreBlocks) {
  const Spec spec{.count = 3};
  const auto tensor = node.declare(spec, "none(int:bits=8)");
  const OpId op = node.submit(spec, node.by_recipe_of(*tensor));
  const auto block = lossy_block("none(int:bits=8)", {1, -2, 3});
  keep_block(op, 0, block);
  keep(op, 1, {10, 20, 30});
  node.give<float>(op, {100, 200, 300});
  EXPECT_EQ(reduced(op).problem, nullptr);
  std::vector<float> expected = decoded(block, 3);
  for (std::size_t i = 0; i < 3; ++i) {
    expected[i] += 10.0f * static_cast<float>(i + 1);
    expected[i] += 100.0f * static_cast<float>(i + 1);
  }
  EXPECT_EQ(node.got(op), expected);
}

// The first block of all is what the reduction begins with, and no zeros.
TEST_F(BlockDecoderOfEagerOps, HaveTheirMaximumAlsoOfBlocks) {
  const Spec spec{.count = 2, .reduction = Reduction::max};
  const OpId op = node.submit(spec);
  keep_block(op, 0, raw_block<float>(DType::f32, {-5, -1}));
  keep(op, 1, {-2, -7});
  node.give<float>(op, {-9, -9});
  EXPECT_EQ(reduced(op).problem, nullptr);
  EXPECT_EQ(node.got(op), (std::vector<float>{-2, -1}));
}

TEST_F(BlockDecoderOfEagerOps, NameTheNodeWhoseBlockMakesNoSense) {
  const Spec spec{.count = 3};
  const auto exact = node.declare(spec, "raw");
  exact->exempt = true;
  const auto lossy = lossy_block("none(int:bits=8)", {1, -2, 3});
  auto longer = lossy_block("none(int:bits=8)", {1, -2, 3, 4});
  auto garbled = lossy;
  garbled[0] = std::byte{0xee};
  Spec of_use = spec;
  for (const auto& block : {lossy, longer, garbled}) {
    const OpId op = node.submit(of_use, node.by_recipe_of(*exact));
    ++of_use.use;
    keep(op, 0, {1, 2, 3});
    keep_block(op, 1, block);
    const BlockCompletion done = reduced(op);
    EXPECT_NE(done.problem, nullptr);
    EXPECT_EQ(done.node, 1u);
    node.core.ops().fail(op, {Errc::cancelled, 0, ""});
    node.carry_out_all();
    node.core.ops().release(op);
    node.eager.release(op);
  }
}

TEST_F(BlockDecoderOfEagerOps, GetTheRootsValues) {
  const Spec spec{.count = 2, .kind = shm::OpKind::broadcast, .root = 0};
  const OpId op = node.submit(spec);
  node.hear(0, spec, 0);
  node.hear(1, spec, 8);  // rank 0 is there
  keep(op, 1, {7, 8});
  perform(BlockVerb::reduce, op, {});
  EXPECT_EQ(node.got(op), (std::vector<float>{7, 8}));
}

}  // namespace
}  // namespace tern::daemon::block_decoder_test
