// What a reader adds up of many blocks is what their codes add up to: with a common step, which
// blocks with a common largest magnitude have, the sum of decoded blocks is the step times the sum
// of the codes, without a rounding, up to the largest sum that nodes can have.

#include <gtest/gtest.h>

#include <cmath>

#include "codec_harness.h"

namespace tern::codec {
namespace linearity_test {

constexpr std::size_t kCount = 1000;
constexpr std::size_t kBlock = 64;

// Of every block the first element is the largest level, so that its step is `step` exactly.
std::vector<std::int32_t> levels_of_node(std::int32_t largest, std::mt19937_64& engine) {
  std::uniform_int_distribution<std::int32_t> level(-largest, largest);
  std::vector<std::int32_t> levels(kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    levels[i] = i % kBlock == 0 ? largest : level(engine);
  }
  return levels;
}

class Linearity : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Bits, Linearity, testing::Range(2, 9));

TEST_P(Linearity, SumOfDecodedBlocksIsTheStepTimesTheSumOfCodes) {
  constexpr std::uint64_t kSeed = 12;
  constexpr std::size_t kNodes = 200;
  constexpr float kStep = 0.375f;  // products with a level are exact
  std::mt19937_64 engine(kSeed);
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  const std::int32_t largest = (1 << (GetParam() - 1)) - 1;
  const Recipe recipe =
      recipe_of("none(int:bits=" + std::to_string(GetParam()) + ",block=" + std::to_string(kBlock) +
                (GetParam() % 2 == 0 ? ")" : ",round=stochastic)"));
  for (const std::string& target : target_names()) {
    const ForcedTarget forced(target);
    std::vector<float> sums(kCount, 0.0f), none;
    std::vector<std::int32_t> codes(kCount, 0);
    for (std::size_t node = 0; node < kNodes; ++node) {
      const auto levels = levels_of_node(largest, engine);
      std::vector<float> values(kCount);
      for (std::size_t i = 0; i < kCount; ++i) {
        values[i] = static_cast<float>(levels[i]) * kStep;
        codes[i] += levels[i];
      }
      EncodeRequest request;
      request.key = mixed_key(kSeed, node);
      const auto block = encode_block(recipe, values, none, request);
      ASSERT_EQ(decode_add({block.header, block.payload}, sums, workspace()), DecodeStatus::ok);
    }
    for (std::size_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(sums[i], static_cast<float>(codes[i]) * kStep) << target << ' ' << i;
    }
    EXPECT_EQ(codes[0], static_cast<std::int32_t>(kNodes) * largest);
  }
}

}  // namespace linearity_test
}  // namespace tern::codec
