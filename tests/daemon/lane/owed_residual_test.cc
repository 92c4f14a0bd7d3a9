// Residuals that a lossy recipe left to an exact one.

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "base/half.h"
#include "block_encoder_rig.h"

namespace tern::daemon::block_encoder_test {
namespace {

TEST_F(BlockEncoderTest, AnExactContributionPaysTheResidualBack) {
  const Spec spec{.count = 2 * kChunk};
  const auto tensor = node.declare(spec, "ef(int:bits=4)");
  const OpId op = node.begin(spec, tuned(*tensor));
  node.give(op, ramp(2 * kChunk, 0, 1));
  std::fill_n(tensor->codec.sender(kChunk), kChunk, 0.5f);
  tensor->tuning->residual_pending(1) = 1;
  const BlockCompletion done = contribute(op, raw);
  EXPECT_EQ(done.form, BlockForm::elements);
  EXPECT_EQ(made_floats(done), ramp(kChunk, kChunk + 0.5f, 1));
  EXPECT_EQ(tensor->codec.sender(kChunk)[0], 0.0f);
  EXPECT_EQ(tensor->tuning->residual_pending(1), 0u);
  EXPECT_EQ(contribute(op, raw).form, BlockForm::input);  // nothing is owed any more
}

TEST_F(BlockEncoderTest, ALossyBlockOfATunedTensorOwes) {
  const Spec spec{.count = 2 * kChunk};
  const auto tensor = node.declare(spec, "ef(int:bits=4)");
  const OpId op = node.begin(spec, tuned(*tensor));
  node.give(op, ramp(2 * kChunk, 0, 1));
  contribute(op, tensor->declared.recipe);
  EXPECT_EQ(tensor->tuning->residual_pending(1), 1u);
  EXPECT_EQ(tensor->tuning->residual_pending(0), 0u);
}

TEST_F(BlockEncoderTest, AResidualIsNotPaidIntoWhatIsNotFinite) {
  const Spec spec{.count = 2 * kChunk};
  const auto tensor = node.declare(spec, "ef(int:bits=4)");
  const OpId op = node.begin(spec, tuned(*tensor));
  node.give(op, std::vector<float>(2 * kChunk, std::numeric_limits<float>::infinity()));
  tensor->codec.sender(kChunk)[0] = 0.5f;
  tensor->tuning->residual_pending(1) = 1;
  EXPECT_EQ(contribute(op, raw).form, BlockForm::input);
  EXPECT_EQ(tensor->codec.sender(kChunk)[0], 0.5f);
  EXPECT_EQ(tensor->tuning->residual_pending(1), 1u);
}

constexpr std::uint64_t kHalves = 2 * kChunk;  // elements of two bytes in a chunk

TEST_F(BlockEncoderTest, AResidualIsNotPaidIntoWhatItWouldMakeInfinite) {
  const Spec spec{.count = 2 * kHalves, .dtype = DType::f16};
  const auto tensor = node.declare(spec, "ef(int:bits=4)");
  const OpId op = node.begin(spec, tuned(*tensor));
  node.give(op, std::vector<std::uint16_t>(2 * kHalves, f32_to_f16(60'000.0f)));
  tensor->codec.sender(kHalves)[0] = 10'000.0f;
  tensor->tuning->residual_pending(1) = 1;
  EXPECT_EQ(contribute(op, raw).form, BlockForm::input);
  EXPECT_EQ(tensor->codec.sender(kHalves)[0], 10'000.0f);
  EXPECT_EQ(tensor->tuning->residual_pending(1), 1u);
}

TEST_F(BlockEncoderTest, WhatTwoBytesRoundAwayOfAResidualStays) {
  const Spec spec{.count = 2 * kHalves, .dtype = DType::bf16};
  const auto tensor = node.declare(spec, "ef(int:bits=4)");
  const OpId op = node.begin(spec, tuned(*tensor));
  node.give(op, std::vector<std::uint16_t>(2 * kHalves, f32_to_bf16(1.0f)));
  tensor->codec.sender(kHalves)[0] = 0.001f;
  tensor->codec.sender(kHalves)[1] = 0.5f;
  tensor->tuning->residual_pending(1) = 1;
  EXPECT_EQ(contribute(op, raw).form, BlockForm::elements);
  EXPECT_EQ(room.as<std::uint16_t>()[1], f32_to_bf16(1.5f));
  EXPECT_EQ(tensor->codec.sender(kHalves)[0], (1.0f + 0.001f) - 1.0f);
  EXPECT_EQ(tensor->codec.sender(kHalves)[1], 0.0f);
}

TEST_F(BlockEncoderTest, AnExactAveragePaysWhatIsOwedOfAverages) {
  const Spec spec{.reduction = Reduction::average};
  const auto tensor = node.declare(spec, "ef(int:bits=4)");
  const OpId op = node.begin(spec, tuned(*tensor));
  tensor->codec.sender(0)[1] = 0.5f;
  tensor->tuning->residual_pending(0) = 1;
  Memory sum(std::vector<float>(kChunk, 8.0f));
  EXPECT_EQ(finish(op, raw, sum).form, BlockForm::sum);
  EXPECT_EQ(node.got(op)[0], 4.0f);
  EXPECT_EQ(node.got(op)[1], 4.5f);
  EXPECT_EQ(sum.as<float>()[1], 4.5f);
}

// What a contribution of a reduce has left out is of the sum, also when its node has become the
// root.
TEST_F(BlockEncoderTest, AnExactAverageOfAReducePaysWhatIsOwedOfTheSum) {
  const Spec spec{.reduction = Reduction::average, .kind = shm::OpKind::reduce, .root = 0};
  const auto tensor = node.declare(spec, "ef(int:bits=4)");
  const OpId op = node.begin(spec, tuned(*tensor));
  tensor->codec.sender(0)[1] = 0.5f;
  tensor->tuning->residual_pending(0) = 1;
  Memory sum(std::vector<float>(kChunk, 8.0f));
  finish(op, raw, sum);
  EXPECT_EQ(node.got(op)[0], 4.0f);
  EXPECT_EQ(node.got(op)[1], 4.25f);
  EXPECT_EQ(tensor->codec.sender(0)[1], 0.0f);
  EXPECT_EQ(tensor->tuning->residual_pending(0), 0u);
}

TEST_F(BlockEncoderTest, WhatTwoBytesHaveRoundedAwayFollowsTheScale) {
  const Spec spec{.count = 2 * kHalves, .dtype = DType::bf16};
  const auto tensor = node.declare(spec, "ef(int:bits=4)");
  LaneOp scaled = tuned(*tensor);
  scaled.encoding.state_scale = 0.5f;
  const OpId op = node.begin(spec, scaled);
  node.give(op, std::vector<std::uint16_t>(2 * kHalves, f32_to_bf16(0.0f)));
  tensor->codec.sender(kHalves)[0] = 1.0f + 0x1p-10f;
  EXPECT_EQ(tensor->tuning->residual_pending(1), 0u);
  EXPECT_EQ(contribute(op, raw).form, BlockForm::elements);
  EXPECT_EQ(room.as<std::uint16_t>()[0], f32_to_bf16(0.5f));
  EXPECT_EQ(tensor->codec.sender(kHalves)[0], 0x1p-11f);
}

}  // namespace
}  // namespace tern::daemon::block_encoder_test
