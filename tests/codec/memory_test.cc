// What memories promise of the values themselves: nothing is lost by error feedback, and both ends
// of a stream of shifts agree. Every value goes through blocks, as between two daemons.

#include <gtest/gtest.h>

#include <cmath>

#include "stream.h"

namespace tern::codec {
namespace memory_test {

constexpr std::size_t kDimensions = 20;
using Vector = std::vector<double>;

TEST(Diana, AlphaIsTheInverseOfOnePlusOmega) {
  EXPECT_FLOAT_EQ(shift_alpha(recipe_of("diana(randk:k=5)"), kDimensions), 0.25f);
  EXPECT_FLOAT_EQ(shift_alpha(recipe_of("diana(natural)"), kDimensions), 8.0f / 9.0f);
  // Independent sparsification of differences: alpha is the share (ISEGA, arXiv:1901.09437).
  EXPECT_FLOAT_EQ(shift_alpha(recipe_of("diana(blocksparse:p=0.25,block=1)"), 20), 0.25f);
  EXPECT_FLOAT_EQ(shift_alpha(recipe_of("diana:alpha=0.5(natural)"), kDimensions), 0.5f);
  EXPECT_EQ(shift_alpha(recipe_of("ef21(topk:k=1)"), kDimensions), 1.0f);
}

// One alpha serves all chunks of a tensor, the short last one too.
TEST(Diana, AShortChunkVariesNoMoreThanALongOne) {
  for (const char* const text : {"diana(randk:p=0.25)", "diana(randk:p=0.01+natural)",
                                 "diana(blocksparse:p=0.3,block=64)", "diana(qsgd:levels=4)"}) {
    const Recipe recipe = recipe_of(text);
    const double largest = omega(recipe, 65536);
    for (std::size_t count = 1; count < 3000; ++count) {
      ASSERT_LE(omega(recipe, count), largest * (1 + 1e-6)) << text << " " << count;
    }
  }
}

TEST(Ef21, TheFirstBlockIsExact) {
  Stream stream(recipe_of("ef21(topk:k=1,exact=on)"), 0, kDimensions);
  const auto values = gaussian(kDimensions, 5);
  EXPECT_EQ(bits_of(stream.send(values)), bits_of(values));
}

TEST(ShiftStream, AGapIsRefusedAndStepZeroBeginsAnew) {
  const Recipe recipe = recipe_of("diana(qsgd:levels=4)");
  std::vector<float> sender(64, 0.0f), shift(64, 3.0f), out(64);
  std::uint64_t step = 7;
  const ShiftStream stream{shift.data(), &step, shift_alpha(recipe, 64), 1.0f};
  EncodeRequest request;
  request.alpha = stream.alpha;
  request.stream_step = 9;
  const auto values = gaussian(64, 5);
  auto block = encode_block(recipe, values, sender, request);
  EXPECT_EQ(decode_shifted({block.header, block.payload}, stream, out, workspace()),
            DecodeStatus::state_gap);
  EXPECT_EQ(step, 7u);
  EXPECT_EQ(shift[0], 3.0f);
  sender.assign(64, 0.0f);
  request.stream_step = 0;
  block = encode_block(recipe, values, sender, request);
  EXPECT_EQ(decode_shifted({block.header, block.payload}, stream, out, workspace()),
            DecodeStatus::ok);
  EXPECT_EQ(step, 1u);
  EXPECT_EQ(bits_of(shift), bits_of(sender));
}

// A level that the delivered type cannot have: the codebook of the steps before stays.
TEST(Lloyd, ABlockThatFailsTrainsNothing) {
  const Recipe recipe = recipe_of("ef(lloyd:bits=2)");
  std::vector<float> residual(512, 0.0f), codebook(kCodebookLevels, 0.0f);
  EncodeRequest request;
  request.delivered = DType::f16;
  request.codebook = codebook.data();
  auto values = gaussian(512, 5);
  EXPECT_FALSE(encode_block(recipe, values, residual, request).result.nonfinite);
  const auto before = codebook;
  EXPECT_NE(before[0], 0.0f);
  for (float& value : values) value *= 1e6f;
  EXPECT_TRUE(encode_block(recipe, values, residual, request).result.nonfinite);
  EXPECT_EQ(codebook, before);
}

class ErrorFeedback : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Recipes, ErrorFeedback,
                         testing::Values("ef(bf16)", "ef(fp8)", "ef(mxfp4)", "ef(int:bits=4)",
                                         "ef(int:bits=2,round=stochastic)",
                                         "ef(qsgd:levels=1,norm=2)", "ef(terngrad)", "ef(natural)",
                                         "ef(onebit)", "ef(bitmask:keep=3)", "ef(lloyd:bits=2)",
                                         "ef(lloyd:bits=4+huffman)", "ef(3lc:s=1.75)",
                                         "ef(3lc:s=1+huffman)", "ef(topk:p=0.01)",
                                         "ef(topk:p=0.05,exact=on+int:bits=8)", "ef(randk:p=0.1)",
                                         "ef(blocksparse:p=0.1,block=64+qsgd:levels=4)"));

// What was decoded so far and what is kept add up to what came in; and what is kept stays bounded,
// which is what makes the memory worth having.
TEST_P(ErrorFeedback, Telescopes) {
  constexpr std::size_t kCount = 5000, kSteps = 200;
  const Recipe recipe = recipe_of(GetParam());
  Stream stream(recipe, 0, kCount);
  Vector in(kCount, 0.0), out(kCount, 0.0);
  double energy = 0;
  for (std::size_t step = 0; step < kSteps; ++step) {
    const auto values = gaussian(kCount, 1000 + step);
    const auto heard = stream.send(values);
    for (std::size_t i = 0; i < kCount; ++i) {
      in[i] += static_cast<double>(values[i]);
      out[i] += static_cast<double>(heard[i]);
      energy += static_cast<double>(values[i]) * static_cast<double>(values[i]);
    }
  }
  double largest = 0, worst = 0, kept = 0;
  for (std::size_t i = 0; i < kCount; ++i) {
    const double left = static_cast<double>(stream.sender()[i]);
    largest = std::max(largest, std::abs(left));
    kept += left * left;
    worst = std::max(worst, std::abs(out[i] + left - in[i]));
  }
  EXPECT_LT(worst, static_cast<double>(kSteps) * std::ldexp(1.0, -22) * (largest + 5));
  EXPECT_LT(kept, energy);  // less than everything: it does come out again
}

// The 3LC paper's pull: the server compresses the change of the model once, and what it keeps back
// is the distance of the workers' replicas to its model.
TEST(ErrorFeedbackInvariant, ReplicaPlusServerResidualIsTheModel) {
  constexpr std::size_t kCount = 5000;
  Stream pull(recipe_of("3lc:s=1.5"), 0, kCount);
  Vector model(kCount, 0.0), replica(kCount, 0.0);
  for (std::size_t step = 0; step < 100; ++step) {
    const auto change = gaussian(kCount, 77 + step, 0.01f);
    const auto heard = pull.send(change);
    for (std::size_t i = 0; i < kCount; ++i) {
      model[i] += static_cast<double>(change[i]);
      replica[i] += static_cast<double>(heard[i]);
    }
  }
  for (std::size_t i = 0; i < kCount; ++i) {
    ASSERT_NEAR(replica[i] + static_cast<double>(pull.sender()[i]), model[i], 1e-5);
  }
}

}  // namespace memory_test
}  // namespace tern::codec
