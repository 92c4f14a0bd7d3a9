#include "codec/quantizer/plane_layout.h"
#include "quantizer_harness.h"

namespace tern::codec::quantizer {
namespace plane_test {

const Params kNaturalParams{.kind = Kind::natural};

class Planes : public testing::TestWithParam<std::string> {
 protected:
  ForcedTarget target_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Targets, Planes, testing::ValuesIn(target_names()));

TEST(NaturalRule, MovesUpByTheMantissa) {
  // The draw is the top 23 bits of the random number.
  const auto exponent = [](float value, std::uint32_t draw) {
    return natural_exponent(value, draw << 9);
  };
  EXPECT_EQ(exponent(1.25f, 0x1fffff), 0x80);
  EXPECT_EQ(exponent(1.25f, 0x200000), 0x7f);
  EXPECT_EQ(exponent(-3.0f, 0), 0x81);
  EXPECT_EQ(exponent(-3.0f, 0x400000), 0x80);
  for (const std::uint32_t draw : {0u, 1u, 0x7fffffu}) {
    EXPECT_EQ(exponent(1.0f, draw), 0x7f);
    EXPECT_EQ(exponent(0.0f, draw), 0);
  }
}

TEST_P(Planes, NaturalWritesExponentsThenSigns) {
  const std::vector<float> values = {1, -2, 4, -0.5f, 0, 8, -1, 1, -1, 0x1p127f};
  const Quantized codes = quantized(kNaturalParams, values);
  EXPECT_EQ(numbers(codes.body),
            (std::vector<unsigned>{127, 128, 129, 126, 0, 130, 127, 127, 127, 254, 0x4a, 0x01}));
  EXPECT_EQ(round_trip(kNaturalParams, values), values);
}

TEST_P(Planes, NaturalIsUnbiased) {
  const std::vector<float> values = {1, -2, 3, -4, .5f, 0, 1.25f, -2.5f};
  std::vector<double> variance;
  for (const float value : values) {
    if (value == 0.0f) {
      variance.push_back(0.0);
      continue;
    }
    const double lower = std::ldexp(1.0, std::ilogb(value));
    const double t = std::fabs(static_cast<double>(value)) / lower - 1.0;
    variance.push_back(lower * lower * t * (1.0 - t));
  }
  EXPECT_DOUBLE_EQ(variance[6], 0.1875);
  expect_unbiased(kNaturalParams, values, variance);
}

TEST_P(Planes, NaturalIsUnbiasedForSubnormals) {
  const double top = 0x1p-126;
  const std::vector<float> values = {0x1p-127f, -0x3p-128f};
  expect_unbiased(kNaturalParams, values, {top * top * 0.25, top * top * 0.1875});
}

TEST_P(Planes, NaturalRefusesWhatCouldBecomeInfinite) {
  EXPECT_TRUE(quantized(kNaturalParams, std::vector{1.0f, -0x1p127f}).ok);
  EXPECT_FALSE(quantized(kNaturalParams, std::vector{std::nextafter(0x1p127f, 2e38f)}).ok);
  for (const std::size_t at : {0u, 50u, 4096u, 4099u}) {
    std::vector<float> values(4100, 1.0f);
    Quantized codes = quantized(kNaturalParams, values);
    codes.body[at < 4096 ? at : at + 512] = std::byte{255};
    EXPECT_FALSE(dequantized(kNaturalParams, codes, 4100).ok);
  }
}

TEST(NaturalOmega, IsOneEighth) { EXPECT_EQ(omega(kNaturalParams, 1000), 0.125); }

Params bitmask(unsigned keep, bool rounding = true) {
  Params params{.kind = Kind::bitmask};
  params.bits = static_cast<std::uint8_t>(keep);
  params.rounding = rounding;
  return params;
}

TEST_P(Planes, BitmaskWritesPlanesFromTheTop) {
  const std::vector<float> values = {std::bit_cast<float>(0x3f812345u),
                                     std::bit_cast<float>(0xc0abcdefu),
                                     std::bit_cast<float>(0x12345678u)};
  EXPECT_EQ(numbers(quantized(bitmask(7, false), values).body),
            (std::vector<unsigned>{0x3f, 0xc0, 0x12, 0x81, 0xab, 0x34}));
  // 19 bits: two planes, and three bits each of 001, 110, 010, the first lowest.
  EXPECT_EQ(numbers(quantized(bitmask(10, false), values).body),
            (std::vector<unsigned>{0x3f, 0xc0, 0x12, 0x81, 0xab, 0x34, 0xb1, 0x00}));
  EXPECT_EQ(numbers(quantized(bitmask(7), values).body),
            (std::vector<unsigned>{0x3f, 0xc0, 0x12, 0x81, 0xac, 0x34}));
}

TEST_P(Planes, BitmaskOfSevenBitsRoundsAsBf16) {
  const std::vector<float> values = gaussian(4500, kSeed);
  EXPECT_EQ(bits_of(round_trip(bitmask(7), values)),
            bits_of(round_trip({.kind = Kind::bf16}, values)));
}

TEST_P(Planes, BitmaskOfAllBitsLosesNothing) {
  std::vector<float> values = gaussian(4500, kSeed);
  values[1] = -0.0f;
  values[2] = 1e-44f;
  values[3] = -std::numeric_limits<float>::max();
  EXPECT_EQ(bits_of(round_trip(bitmask(23), values)), bits_of(values));
  EXPECT_EQ(bits_of(round_trip(bitmask(23, false), values)), bits_of(values));
}

TEST_P(Planes, BitmaskErrorIsBounded) {
  const std::vector<float> values = gaussian(3000, kSeed);
  for (unsigned keep = 1; keep <= 23; ++keep) {
    const std::vector<float> cut = round_trip(bitmask(keep, false), values);
    const std::vector<float> rounded = round_trip(bitmask(keep), values);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double value = static_cast<double>(values[i]);
      const double unit = std::ldexp(std::fabs(value), -static_cast<int>(keep));
      EXPECT_LE(std::fabs(cut[i]), std::fabs(values[i]));
      EXPECT_LE(std::fabs(static_cast<double>(cut[i]) - value), unit);
      EXPECT_LE(std::fabs(static_cast<double>(rounded[i]) - value), 0.5 * unit);
    }
  }
}

TEST_P(Planes, BitmaskRefusesInfinity) {
  const float most = std::numeric_limits<float>::max();
  EXPECT_FALSE(quantized(bitmask(7), std::vector{1.0f, -most}).ok);
  EXPECT_TRUE(quantized(bitmask(7, false), std::vector{1.0f, -most}).ok);
  Quantized codes = quantized(bitmask(7), std::vector{1.0f, 2.0f});
  codes.body[1] = std::byte{0x7f};
  codes.body[3] = std::byte{0x80};
  EXPECT_FALSE(dequantized(bitmask(7), codes, 2).ok);
}

}  // namespace plane_test
}  // namespace tern::codec::quantizer
