#include "codec/quantizer/integer_rule.h"
#include "quantizer_harness.h"

namespace tern::codec::quantizer {
namespace integer_test {

Params integer(unsigned bits, std::uint32_t block, bool stochastic = false) {
  Params params;
  params.kind = Kind::integer;
  params.bits = static_cast<std::uint8_t>(bits);
  params.block = block;
  params.stochastic = stochastic;
  return params;
}

class Integer : public testing::TestWithParam<std::string> {
 protected:
  ForcedTarget target_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Targets, Integer, testing::ValuesIn(target_names()));

// Levels -L to L of step 1: the codes are known, and so are their bytes in little-endian bit order.
TEST_P(Integer, PacksCodesFirstInTheLowBits) {
  const std::vector<float> three = {3, -3, 0, 1, -1, 2, -2, 0, 3};  // codes 6 0 3 4 2 5 1 3 6
  const Quantized codes = quantized(integer(3, 0), three);
  EXPECT_EQ(numbers(codes.body), (std::vector<unsigned>{0xc6, 0xa8, 0x66, 0x06}));
  EXPECT_EQ(numbers(quantized(integer(4, 0), std::vector<float>{7, -7, 0}).body),
            (std::vector<unsigned>{0x0e, 0x07}));
  EXPECT_EQ(numbers(quantized(integer(2, 0), std::vector<float>{1, -1, 0, 1, 1}).body),
            (std::vector<unsigned>{0x92, 0x02}));
  EXPECT_EQ(numbers(quantized(integer(8, 0), std::vector<float>{127, -127, 0, 0.5f, 1.5f}).body),
            (std::vector<unsigned>{254, 0, 127, 127, 129}));
}

TEST_P(Integer, ReturnsLevelsAsTheyWere) {
  for (unsigned bits = 2; bits <= 8; ++bits) {
    const std::int32_t level = largest_level(bits);
    std::vector<float> values;
    for (std::int32_t i = -level; i <= level; ++i) values.push_back(0.25f * static_cast<float>(i));
    EXPECT_EQ(round_trip(integer(bits, 0), values), values);
    EXPECT_EQ(round_trip(integer(bits, 0, true), values, Input{.values = {}, .key = kSeed}),
              values);
  }
}

TEST_P(Integer, ErrorIsHalfAStepAtMost) {
  const std::vector<float> values = gaussian(2000, kSeed);
  for (unsigned bits = 2; bits <= 8; ++bits) {
    const Quantized codes = quantized(integer(bits, 128), values);
    const std::vector<float> back = round_trip(integer(bits, 128), values);
    const std::vector<float> drawn = round_trip(integer(bits, 128, true), values);
    for (std::size_t i = 0; i < values.size(); ++i) {
      float step;
      std::memcpy(&step, codes.side.data() + i / 128 * sizeof(float), sizeof(step));
      EXPECT_LE(std::fabs(back[i] - values[i]), 0.5f * step * 1.00001f);
      EXPECT_LE(std::fabs(drawn[i] - values[i]), step * 1.00001f);
    }
  }
}

TEST_P(Integer, IsUnbiased) {
  const std::vector<float> values = {1, -2, 3, -4, .5f, 0, 1.5f, -2.5f};
  for (const unsigned bits : {2u, 4u, 8u}) {
    const double step = 4.0 / largest_level(bits);
    std::vector<double> variance;
    for (const float value : values) {
      const double t = std::fabs(static_cast<double>(value)) / step;
      const double fraction = t - std::floor(t + 1e-9);
      variance.push_back(step * step * std::max(0.0, fraction * (1.0 - fraction)));
    }
    expect_unbiased(integer(bits, 0, true), values, variance);
  }
}

TEST_P(Integer, IsUnbiasedWhereTheStepIsSubnormal) {
  const float unit = std::numeric_limits<float>::denorm_min();
  const std::vector<float> values = {unit, -unit * 5, unit * 200, 0};
  // 200/127 units round up to a step of two.
  const std::vector<double> variance = {1.0 * unit * unit, 1.0 * unit * unit, 0, 0};
  std::vector<double> sum(values.size());
  constexpr int kDraws = 20000;
  for (int draw = 0; draw < kDraws; ++draw) {
    Input input;
    input.key = kSeed;
    input.position = static_cast<std::uint32_t>(draw) * 4;
    const std::vector<float> back = round_trip(integer(8, 0, true), values, input);
    for (std::size_t i = 0; i < 4; ++i) sum[i] += static_cast<double>(back[i] / unit);
  }
  EXPECT_NEAR(sum[0] / kDraws, 1.0, 5.0 / std::sqrt(kDraws));
  EXPECT_NEAR(sum[1] / kDraws, -5.0, 5.0 / std::sqrt(kDraws));
  EXPECT_EQ(sum[2] / kDraws, 200.0);
}

TEST_P(Integer, RefusesScalesAndCodesThatDoNotExist) {
  for (unsigned bits = 2; bits <= 8; ++bits) {
    const Params params = integer(bits, 32);
    const std::vector<float> values = gaussian(70, kSeed);
    for (const float scale :
         {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(), -1.0f,
          -0.0f, std::numeric_limits<float>::max() * (bits == 2 ? -1.0f : 1.0f)}) {
      Quantized codes = quantized(params, values);
      put_f32(codes.side, 2, scale);
      EXPECT_FALSE(dequantized(params, codes, 70).ok) << scale;
    }
    for (std::size_t at = 0; at < 70; ++at) {
      Quantized codes = quantized(params, values);
      for (unsigned bit = 0; bit < bits; ++bit) {  // all ones is 2L + 1
        const std::size_t place = at * bits + bit;
        codes.body[place / 8] |= std::byte{1} << static_cast<int>(place % 8);
      }
      EXPECT_FALSE(dequantized(params, codes, 70).ok) << bits << ' ' << at;
    }
  }
}

TEST(IntegerOmega, IsTheWorstCaseOfABlock) {
  EXPECT_DOUBLE_EQ(omega(integer(8, 256, true), 10000), 256 / (4.0 * 127 * 127));
  EXPECT_DOUBLE_EQ(omega(integer(4, 0, true), 1000), 1000 / (4.0 * 49));
  EXPECT_LT(omega(integer(8, 256), 10000), 0.0);
}

// Two bits and a block of 256: unbiased rounding would be no contraction.
TEST_P(Integer, RoundsToNearestWhereAContractionNeedsIt) {
  const std::vector<float> values = gaussian(512, kSeed);
  Input input;
  input.key = kSeed;
  const Quantized drawn = quantized(integer(2, 256, true), values, input);
  input.contractive = true;
  const Quantized contracted = quantized(integer(2, 256, true), values, input);
  EXPECT_NE(contracted, drawn);
  EXPECT_EQ(contracted, quantized(integer(2, 256), values));
  EXPECT_NE(quantized(integer(8, 256, true), values, input), quantized(integer(8, 256), values));
}

}  // namespace integer_test
}  // namespace tern::codec::quantizer
