#include "daemon/lane/block_encoder.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/half.h"
#include "block_encoder_rig.h"

namespace tern::daemon::block_encoder_test {
namespace {

using group_test::decoded;
using group_test::lossy_block;

class BlockEncoderOfTwoRanks : public BlockEncoderTest {
 protected:
  BlockEncoderOfTwoRanks() : BlockEncoderTest({.ranks = {{0, 1}, {2}}}) {}
};

// ---- Contributions

TEST_F(BlockEncoderTest, APlainContributionGoesFromTheInputItself) {
  const OpId op = node.begin({.count = 2 * kChunk - 6});
  const BlockCompletion done = contribute(op, raw);
  EXPECT_EQ(done.form, BlockForm::input);
  EXPECT_EQ(done.bytes, (kChunk - 6) * sizeof(float));
  EXPECT_FALSE(done.nonfinite);
}

TEST_F(BlockEncoderOfTwoRanks, ContributeTheirSumAsElements) {
  const OpId op = node.begin({.count = 2 * kChunk});
  node.give(op, ramp(2 * kChunk, 1, 1), 0);
  node.give(op, ramp(2 * kChunk, 2, 1), 1);
  const BlockCompletion done = contribute(op, raw);
  EXPECT_EQ(done.form, BlockForm::elements);
  EXPECT_EQ(made_floats(done), ramp(kChunk, 3 + 2 * kChunk, 2));
}

TEST_F(BlockEncoderTest, AScanKeepsTheLargestValueOfTheChunksThatItHasSeen) {
  const Spec spec{.count = 4 * kChunk};
  const auto tensor = node.declare(spec, "ef(3lc:scale=tensor)");
  const OpId op = node.begin(spec, Node::by_recipe_of(*tensor));
  node.give(op, ramp(4 * kChunk, 1, 1));
  EXPECT_EQ(scan(op, {1}), static_cast<float>(2 * kChunk));
  EXPECT_EQ(scan(op, {3}), static_cast<float>(4 * kChunk));
  EXPECT_EQ(scan(op, {1}), static_cast<float>(4 * kChunk)) << "the largest of all";
}

TEST_F(BlockEncoderOfTwoRanks, GatherAllOfAnEagerOp) {
  const OpId op = node.begin({.count = 5});
  node.give(op, ramp(5, 1, 1), 0);
  node.give(op, ramp(5, 10, 1), 1);
  BlockRequest request;
  request.block = room.operand();
  const BlockCompletion done = perform(BlockVerb::gather, op, request);
  EXPECT_EQ(done.form, BlockForm::elements);
  EXPECT_EQ(made_floats(done), ramp(5, 11, 2));
}

TEST_F(BlockEncoderTest, ALossyContributionIsTheBlockThatItsCodecMakes) {
  const auto values = ramp(2 * kChunk, -3.0f, 0.03f);
  const std::vector<float> sent(values.begin() + kChunk, values.end());
  std::uint64_t tensor_id = 2;
  for (const char* const text : {"bf16", "none(int:bits=8)", "ef(int:bits=4)", "ef(3lc:s=1.5)"}) {
    const Spec spec{.tensor = tensor_id, .count = 2 * kChunk};
    tensor_id += 2;
    const auto tensor = node.declare(spec, text);
    const OpId op = node.begin(spec, Node::by_recipe_of(*tensor));
    node.give(op, values);
    const BlockCompletion done = contribute(op, tensor->declared.recipe);
    ASSERT_EQ(done.form, BlockForm::encoded) << text;
    std::vector<float> residual(kChunk, 0.0f);
    EXPECT_EQ(made(done), lossy_block(text, sent, residual.data())) << text;
    const float* const kept = tensor->codec.sender(kChunk);
    if (kept == nullptr) continue;
    EXPECT_EQ(std::vector<float>(kept, kept + kChunk), residual) << text;
    EXPECT_NE(residual, std::vector<float>(kChunk, 0.0f)) << text;
    EXPECT_EQ(node.codec.blocks().stats(op).encoded_bytes, kChunk * sizeof(float)) << text;
  }
}

TEST_F(BlockEncoderTest, AValueThatIsNotFiniteMakesTheBlockRaw) {
  const Spec spec{.count = 2 * kChunk};
  const auto tensor = node.declare(spec, "ef(int:bits=8)");
  tensor->codec.sender(kChunk)[3] = 0.25f;
  const OpId op = node.begin(spec, Node::by_recipe_of(*tensor));
  auto values = ramp(2 * kChunk, 1, 1);
  values[kChunk + 9] = std::numeric_limits<float>::quiet_NaN();
  node.give(op, values);
  const BlockCompletion done = contribute(op, tensor->declared.recipe);
  EXPECT_EQ(done.form, BlockForm::input);
  EXPECT_EQ(done.bytes, kChunk * sizeof(float));
  EXPECT_TRUE(done.nonfinite);
  EXPECT_EQ(tensor->codec.sender(kChunk)[3], 0.25f);  // still owed
  EXPECT_EQ(node.resources.counters->nonfinite_chunks.load(), 1u);
  EXPECT_EQ(tensor->lanes[0].counts.raw_fallbacks.load(), 1u);
  EXPECT_TRUE(node.codec.blocks().stats(op).error.nonfinite);
}

TEST_F(BlockEncoderTest, WithOneScaleForAllTheLargestValueIsThatOfAllContributions) {
  const Spec spec{.count = 4 * kChunk};
  const auto tensor = node.declare(spec, "ef(3lc:scale=tensor)");
  const OpId op = node.begin(spec, Node::by_recipe_of(*tensor));
  std::vector<float> values(4 * kChunk, 1.0f);
  values[3 * kChunk] = 16.0f;  // of another chunk than the one that is encoded
  node.give(op, values);
  EXPECT_EQ(scan(op, {1, 3}), 16.0f);
  const BlockCompletion done = contribute(op, tensor->declared.recipe);
  ASSERT_EQ(done.form, BlockForm::encoded);
  // Too little by that scale: all of it is owed.
  EXPECT_EQ(decoded(made(done), kChunk), std::vector<float>(kChunk, 0.0f));
  EXPECT_EQ(tensor->codec.sender(kChunk)[0], 1.0f);
}

TEST_F(BlockEncoderTest, ALosslessContributionIsShorterAndTheSameBitForBit) {
  const Spec spec{.count = 2 * kChunk, .role = Role::weights};
  const auto tensor = node.declare(spec, "lossless");
  const OpId op = node.begin(spec, Node::by_recipe_of(*tensor));
  const auto values = ramp(2 * kChunk, 1.0f, 0.001f);
  node.give(op, values);
  const BlockCompletion done = contribute(op, tensor->declared.recipe);
  ASSERT_EQ(done.form, BlockForm::encoded);
  EXPECT_LT(done.bytes, kChunk * sizeof(float));
  const auto block = made(done);
  wire::BlockHeader header;
  ASSERT_EQ(wire::parse_block_header(block, header), wire::BlockError::none);
  Memory out(kChunk * sizeof(float));
  codec::Workspace workspace;
  ASSERT_EQ(codec::decode_lossless({header, std::span(block).subspan(wire::kBlockHeaderBytes)}, {},
                                   out.bytes(), workspace),
            codec::DecodeStatus::ok);
  EXPECT_EQ(out.as<float>(), std::vector<float>(values.begin() + kChunk, values.end()));
}

TEST_F(BlockEncoderTest, WhatDoesNotBecomeShorterGoesAsItIs) {
  const Spec spec{.count = 6, .role = Role::weights};
  const auto tensor = node.declare(spec, "lossless");
  const OpId op = node.begin(spec, Node::by_recipe_of(*tensor));
  node.give<float>(op, {1, 1e-9f, -1e20f, 3e8f, 5e-30f, 7e30f});
  EXPECT_EQ(contribute(op, tensor->declared.recipe, 0).form, BlockForm::input);
}

// ---- Results

TEST_F(BlockEncoderTest, AnExactResultIsDeliveredHereAndGoesFromTheSum) {
  const OpId op = node.begin({.count = kChunk - 1, .reduction = Reduction::average});
  Memory sum(ramp(kChunk - 1, 2, 2));
  const BlockCompletion done = finish(op, raw, sum);
  EXPECT_EQ(done.form, BlockForm::sum);
  EXPECT_EQ(done.bytes, (kChunk - 1) * sizeof(float));
  EXPECT_EQ(sum.as<float>(), ramp(kChunk - 1, 1, 1));  // of two ranks
  EXPECT_EQ(node.got(op), ramp(kChunk - 1, 1, 1));
}

TEST_F(BlockEncoderTest, AnExactResultOfHalvesIsNarrowedIntoTheBlock) {
  const OpId op = node.begin({.count = 2, .dtype = DType::bf16});
  Memory sum(std::vector<float>{1.5f, -300.7f});
  const BlockCompletion done = finish(op, raw, sum);
  EXPECT_EQ(done.form, BlockForm::elements);
  EXPECT_EQ(done.bytes, 2 * sizeof(std::uint16_t));
  const std::vector<std::uint16_t> narrowed = {f32_to_bf16(1.5f), f32_to_bf16(-300.7f)};
  EXPECT_EQ(node.got<std::uint16_t>(op), narrowed);
  auto block = room.as<std::uint16_t>();
  block.resize(2);
  EXPECT_EQ(block, narrowed);
}

TEST_F(BlockEncoderTest, ALossyResultIsHereWhatItIsElsewhere) {
  const Spec spec{.reduction = Reduction::average};
  const auto tensor = node.declare(spec, "ef(int:bits=4)");
  const OpId op = node.begin(spec, Node::by_recipe_of(*tensor));
  const auto sums = ramp(kChunk, -2, 0.06f);
  Memory sum(sums);
  const BlockCompletion done = finish(op, tensor->declared.recipe, sum);
  ASSERT_EQ(done.form, BlockForm::encoded);
  EXPECT_EQ(done.problem, nullptr);
  const auto result = node.got(op);
  EXPECT_EQ(result, decoded(made(done), kChunk));
  for (std::size_t i = 0; i < kChunk; ++i) {
    EXPECT_FLOAT_EQ(tensor->codec.sender(0)[i] + result[i], sums[i] / 2) << i;
  }
}

TEST_F(BlockEncoderTest, AResultThatIsNotFiniteGoesRaw) {
  const Spec spec{};
  const auto tensor = node.declare(spec, "ef(int:bits=4)");
  const OpId op = node.begin(spec, Node::by_recipe_of(*tensor));
  auto sums = ramp(kChunk, 1, 1);
  sums[0] = std::numeric_limits<float>::infinity();
  Memory sum(sums);
  const BlockCompletion done = finish(op, tensor->declared.recipe, sum);
  EXPECT_EQ(done.form, BlockForm::sum);
  EXPECT_TRUE(done.nonfinite);
  EXPECT_EQ(node.got(op), sums);
}

TEST_F(BlockEncoderTest, WithOneScaleForAllASumWaitsForTheOthers) {
  const Spec spec{.count = 4 * kChunk};
  const auto tensor = node.declare(spec, "ef(3lc:scale=tensor)");
  const OpId op = node.begin(spec, Node::by_recipe_of(*tensor));
  Memory small(std::vector<float>(kChunk, 1.0f)), large(std::vector<float>(kChunk, 8.0f));
  EXPECT_EQ(finish(op, tensor->declared.recipe, large, 2).form, BlockForm::parked);
  EXPECT_EQ(finish(op, tensor->declared.recipe, small, 0).form, BlockForm::parked);
  EXPECT_EQ(node.got(op), std::vector<float>(4 * kChunk, 0.0f));
  // By the largest of both the small one is nothing yet.
  const BlockCompletion first = finish_parked(op, tensor->declared.recipe, 0);
  ASSERT_EQ(first.form, BlockForm::encoded);
  EXPECT_EQ(decoded(made(first), kChunk), std::vector<float>(kChunk, 0.0f));
  EXPECT_EQ(tensor->codec.sender(0)[0], 1.0f);
  const BlockCompletion second = finish_parked(op, tensor->declared.recipe, 2);
  ASSERT_EQ(second.form, BlockForm::encoded);
  EXPECT_EQ(decoded(made(second), kChunk), std::vector<float>(kChunk, 8.0f));
  EXPECT_EQ(node.got(op)[2 * kChunk], 8.0f);
}

// A sum of f16 values is one of f32, and its scale may be beyond what f16 has.
TEST_F(BlockEncoderTest, ASumWhoseScaleItsTypeCannotHoldGoesRawAndWaitsForNobody) {
  Spec spec{.count = kChunk};
  spec.dtype = DType::f16;
  const auto tensor = node.declare(spec, "ef(3lc:s=1.75,scale=tensor)");
  const OpId op = node.begin(spec, Node::by_recipe_of(*tensor));
  Memory large(std::vector<float>(kChunk, 40'000.0f));  // finite, and 1.75 times it is not
  EXPECT_EQ(finish(op, tensor->declared.recipe, large, 0).form, BlockForm::elements);
  EXPECT_EQ(tensor->codec.sender(0)[0], 0.0f);
  Memory small(std::vector<float>(kChunk, 30'000.0f));
  EXPECT_EQ(finish(op, tensor->declared.recipe, small, 0).form, BlockForm::parked);
  EXPECT_EQ(finish_parked(op, tensor->declared.recipe, 0).form, BlockForm::encoded);
}

TEST_F(BlockEncoderTest, ASumDoesNotWaitInTheResidualOfAnotherKind) {
  const Spec spec{.count = 2 * kChunk};
  const auto tensor = node.declare(spec, "ef(3lc:scale=tensor)");
  tensor->codec.sender(0)[0] = 0.25f;
  ASSERT_TRUE(tensor->memory_use.take({.kind = 9}));
  const OpId op = node.begin(spec, Node::by_recipe_of(*tensor));
  Memory sum(std::vector<float>(kChunk, 1.0f));
  EXPECT_EQ(finish(op, tensor->declared.recipe, sum, 0).form, BlockForm::sum);
  EXPECT_EQ(tensor->codec.sender(0)[0], 0.25f);
}

TEST_F(BlockEncoderOfTwoRanks, PublishTheRootsElementsToBoth) {
  const OpId op = node.begin({.count = kChunk + 2, .kind = shm::OpKind::broadcast, .root = 1});
  node.give(op, ramp(kChunk + 2, 5, 1), 1);
  BlockRequest request;
  request.number = 1;
  request.recipe = &raw;
  const BlockCompletion done = perform(BlockVerb::publish, op, request);
  EXPECT_EQ(done.form, BlockForm::input);
  EXPECT_EQ(done.bytes, 2 * sizeof(float));
  for (const std::uint32_t rank : {0u, 1u}) {
    const auto output = node.got(op, rank);
    EXPECT_EQ(output[kChunk - 1], 0.0f);  // of another chunk
    EXPECT_EQ(output[kChunk], 5.0f + kChunk);
    EXPECT_EQ(output[kChunk + 1], 6.0f + kChunk);
  }
}

// ---- What moves, with losses

class BlockEncoderOfDeltas : public BlockEncoderTest {
 protected:
  explicit BlockEncoderOfDeltas(const group_test::Shape& shape = {}) : BlockEncoderTest(shape) {}

  BlockCompletion publish(OpId op, const codec::Recipe& recipe, std::uint32_t number = 0) {
    BlockRequest request;
    request.number = number;
    request.recipe = &recipe;
    request.block = room.operand();
    return perform(BlockVerb::publish, op, request);
  }
  static Spec delta(std::uint64_t count = kChunk) {
    return {.count = count, .role = Role::delta, .kind = shm::OpKind::broadcast, .root = 0};
  }
};

class BlockEncoderOfDeltasOfTwo : public BlockEncoderOfDeltas {
 protected:
  BlockEncoderOfDeltasOfTwo() : BlockEncoderOfDeltas({.ranks = {{0, 1}, {2}}}) {}
};

TEST_F(BlockEncoderOfDeltasOfTwo, ADeltaIsForAllRanksHereWhatItIsElsewhere) {
  const auto tensor = node.declare(delta(), "ef(int:bits=4)");
  const OpId op = node.begin(delta(), Node::by_recipe_of(*tensor));
  const auto values = ramp(kChunk, -2, 0.06f);
  node.give(op, values, 0);
  const BlockCompletion done = publish(op, tensor->declared.recipe);
  ASSERT_EQ(done.form, BlockForm::encoded);
  EXPECT_EQ(done.problem, nullptr);
  const auto result = decoded(made(done), kChunk);
  EXPECT_NE(result, values);
  EXPECT_EQ(node.got(op, 0), result);
  EXPECT_EQ(node.got(op, 1), result);
  for (std::size_t i = 0; i < kChunk; ++i) {
    EXPECT_FLOAT_EQ(tensor->codec.sender(0)[i] + result[i], values[i]) << i;
  }
  EXPECT_TRUE(tensor->memory_use.has_one_leg());
}

TEST_F(BlockEncoderOfDeltas, ADeltaThatIsNotFiniteGoesAsItIsAndKeepsTheResidual) {
  const auto tensor = node.declare(delta(), "3lc:s=1");
  const OpId op = node.begin(delta(), Node::by_recipe_of(*tensor));
  auto values = ramp(kChunk, 1, 1);
  values[7] = std::numeric_limits<float>::infinity();
  node.give(op, values);
  std::fill_n(tensor->codec.sender(0), kChunk, 0.25f);
  const BlockCompletion done = publish(op, tensor->declared.recipe);
  EXPECT_EQ(done.form, BlockForm::input);
  EXPECT_TRUE(done.nonfinite);
  EXPECT_EQ(node.got(op), values);
  EXPECT_EQ(tensor->codec.sender(0)[7], 0.25f);
}

// What an all_reduce has left out is no part of a model's difference.
TEST_F(BlockEncoderOfDeltas, ADeltaGoesAsItIsWhereTheResidualIsAnothers) {
  const auto tensor = node.declare(delta(), "3lc:s=1");
  ASSERT_TRUE(tensor->memory_use.take({.kind = 1}));
  const OpId op = node.begin(delta(), Node::by_recipe_of(*tensor));
  node.give(op, ramp(kChunk, 1, 1));
  EXPECT_EQ(publish(op, tensor->declared.recipe).form, BlockForm::input);
  EXPECT_EQ(tensor->codec.sender(0)[0], 0.0f);
}

TEST_F(BlockEncoderOfDeltas, WithOneScaleForAllTheLargestValueIsThatOfAllThatMoves) {
  const Spec spec = delta(2 * kChunk);
  const auto tensor = node.declare(spec, "ef(3lc:scale=tensor)");
  const OpId op = node.begin(spec, Node::by_recipe_of(*tensor));
  std::vector<float> values(2 * kChunk, 1.0f);
  values[kChunk] = 8.0f;
  node.give(op, values);
  EXPECT_EQ(scan(op, {0, 1}), 8.0f);
  const BlockCompletion done = publish(op, tensor->declared.recipe);
  ASSERT_EQ(done.form, BlockForm::encoded);
  EXPECT_EQ(decoded(made(done), kChunk), std::vector<float>(kChunk, 0.0f));
  EXPECT_EQ(tensor->codec.sender(0)[0], 1.0f);
}

TEST_F(BlockEncoderOfDeltas, HalvesAreEncodedInFloatsAndDeliveredRounded) {
  Spec spec = delta();
  spec.dtype = DType::f16;
  const auto tensor = node.declare(spec, "ef(int:bits=8)");
  const OpId op = node.begin(spec, Node::by_recipe_of(*tensor));
  std::vector<std::uint16_t> halves(kChunk);
  for (std::size_t i = 0; i < kChunk; ++i) halves[i] = f32_to_f16(static_cast<float>(i) * 0.01f);
  node.give(op, halves);
  const BlockCompletion done = publish(op, tensor->declared.recipe);
  ASSERT_EQ(done.form, BlockForm::encoded);
  const auto result = decoded(made(done), kChunk);
  const auto got = node.got<std::uint16_t>(op);
  for (std::size_t i = 0; i < kChunk; ++i) EXPECT_EQ(got[i], f32_to_f16(result[i])) << i;
}

}  // namespace
}  // namespace tern::daemon::block_encoder_test
