#include "codec/quantizer/small_float.h"

#include "quantizer_harness.h"

namespace tern::codec::quantizer {
namespace small_float_test {

class SmallFloats : public testing::TestWithParam<std::string> {
 protected:
  ForcedTarget target_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Targets, SmallFloats, testing::ValuesIn(target_names()));

const std::vector<float> kVector = {.1f, -.25f, .5f, .75f, 1, -1.5f, 2, 3, -4.9f, 5, .01f, 7.3f};

TEST_P(SmallFloats, Mxfp4IsThatOfTheMicroscalingFormats) {
  const Params params{.kind = Kind::mxfp4};
  const Quantized codes = quantized(params, kVector);
  EXPECT_EQ(numbers(codes.side), std::vector<unsigned>{127});
  EXPECT_EQ(numbers(codes.body), (std::vector<unsigned>{0x80, 0x21, 0xb2, 0x54, 0x6e, 0x70}));
  EXPECT_EQ(bits_of(dequantized(params, codes, 12).values),
            bits_of(std::vector<float>{0, -0.0f, .5f, 1, 1, -1.5f, 2, 3, -4, 4, 0, 6}));
}

TEST_P(SmallFloats, Mxfp8IsThatOfTheMicroscalingFormats) {
  const Params params{.kind = Kind::mxfp8_e4m3};
  const Quantized codes = quantized(params, kVector);
  EXPECT_EQ(numbers(codes.side), std::vector<unsigned>{121});
  EXPECT_EQ(
      dequantized(params, codes, 12).values,
      (std::vector<float>{.1015625f, -.25f, .5f, .75f, 1, -1.5f, 2, 3, -5, 5, .009765625f, 7}));
}

TEST_P(SmallFloats, MxSaturates) {
  std::vector<float> values(40, 511.0f);
  values[32] = -65000.0f;
  const std::vector<float> e4m3 = round_trip({.kind = Kind::mxfp8_e4m3}, values);
  EXPECT_EQ(e4m3[0], 448.0f);
  const std::vector<float> e5m2 = round_trip({.kind = Kind::mxfp8_e5m2}, values);
  EXPECT_EQ(e5m2[32], -57344.0f);
}

// Every code of the format: its value, from the format's definition, and back.
template <typename Format>
void expect_all_codes(int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  for (int code = 0; code < (1 << Format::kBits); ++code) {
    const int magnitude = code & ((1 << (Format::kBits - 1)) - 1);
    if (magnitude > Format::kLargestCode) continue;
    const int exponent = magnitude >> mantissa_bits;
    const int mantissa = magnitude & ((1 << mantissa_bits) - 1);
    const double significand = std::ldexp(mantissa, -mantissa_bits) + (exponent == 0 ? 0.0 : 1.0);
    const double value = std::ldexp(significand, std::max(exponent, 1) - bias);
    const auto expected = static_cast<float>(code == magnitude ? value : -value);
    const auto byte = static_cast<std::uint8_t>(code);
    EXPECT_EQ(Format::decode(byte), expected) << code;
    EXPECT_EQ(Format::encode(expected), byte) << code;
    if (magnitude == Format::kLargestCode || code != magnitude) continue;
    // Halfway to the next, and its neighbours: to nearest even.
    const float next = Format::decode(static_cast<std::uint8_t>(code + 1));
    const float middle = 0.5f * (expected + next);
    EXPECT_EQ(Format::encode(middle), code + code % 2) << code;
    EXPECT_EQ(Format::encode(std::nextafter(middle, 0.0f)), code);
    EXPECT_EQ(Format::encode(std::nextafter(middle, 1e9f)), code + 1);
  }
  EXPECT_EQ(Format::encode(std::numeric_limits<float>::max()), Format::kLargestCode);
}

TEST(SmallFloat, RoundsEveryCodeToNearestEven) {
  expect_all_codes<E4M3>(4, 3);
  expect_all_codes<E5M2>(5, 2);
  expect_all_codes<E2M1>(2, 1);
  EXPECT_EQ(E4M3::largest(), 448.0f);
  EXPECT_EQ(E5M2::largest(), 57344.0f);
  EXPECT_EQ(E2M1::largest(), 6.0f);
}

TEST_P(SmallFloats, Fp8ScaleIsThePowerOfTwoThatJustFits) {
  const Params params{.kind = Kind::fp8_e4m3, .block = 32};
  std::vector<float> values(96, 1.0f);
  values[0] = 448.0f;
  values[32] = std::nextafter(448.0f, 1e9f);
  values[64] = 0.0f;
  const Quantized codes = quantized(params, values);
  std::vector<std::byte> expected(12);
  put_f32(expected, 0, 1.0f);
  put_f32(expected, 1, 2.0f);
  put_f32(expected, 2, 0x1p-8f);
  EXPECT_EQ(codes.side, expected);
  EXPECT_EQ(numbers(codes.body)[0], 0x7eu);
}

TEST_P(SmallFloats, ErrorIsHalfAUnitAtMost) {
  const std::vector<float> values = gaussian(4000, kSeed);
  for (const Kind kind : {Kind::fp8_e4m3, Kind::fp8_e5m2, Kind::mxfp8_e5m2}) {
    const std::vector<float> back = round_trip({.kind = kind, .block = 256}, values);
    const float relative = kind == Kind::fp8_e4m3 ? 0x1p-4f : 0x1p-3f;
    for (std::size_t i = 0; i < values.size(); ++i) {
      // A block's largest is below 8, so its subnormals have steps below 2^-14.
      const float saturated = kind == Kind::mxfp8_e5m2 ? 2.0f : 1.0f;
      EXPECT_LE(std::fabs(back[i] - values[i]),
                saturated * std::fabs(values[i]) * relative + 0x1p-14f);
    }
  }
}

TEST_P(SmallFloats, RefusesScalesThatDoNotExist) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const Kind kind : {Kind::fp8_e4m3, Kind::fp8_e5m2}) {
    const Params params{.kind = kind, .block = 32};
    for (const float scale : {kInfinity, kNan, -1.0f, -0.0f, 0x1p127f}) {
      Quantized codes = quantized(params, gaussian(70, kSeed));
      put_f32(codes.side, 2, scale);
      EXPECT_FALSE(dequantized(params, codes, 70).ok) << scale;
    }
  }
  for (const Kind kind : {Kind::mxfp8_e4m3, Kind::mxfp8_e5m2, Kind::mxfp4}) {
    Quantized codes = quantized({.kind = kind}, gaussian(70, kSeed));
    codes.side[2] = std::byte{255};
    EXPECT_FALSE(dequantized({.kind = kind}, codes, 70).ok);
  }
}

TEST_P(SmallFloats, RefusesCodesThatDoNotExist) {
  for (const Kind kind : {Kind::fp8_e4m3, Kind::fp8_e5m2, Kind::mxfp8_e4m3, Kind::mxfp8_e5m2}) {
    const bool e4m3 = kind == Kind::fp8_e4m3 || kind == Kind::mxfp8_e4m3;
    const Params params{.kind = kind, .block = 64};
    for (const std::size_t at : {0u, 31u, 40u, 69u}) {
      for (unsigned code = 0; code < 256; ++code) {
        Quantized codes = quantized(params, gaussian(70, kSeed));
        codes.body[at] = std::byte(code);
        EXPECT_EQ(dequantized(params, codes, 70).ok, (code & 0x7f) <= (e4m3 ? 0x7eu : 0x7bu));
      }
    }
  }
}

}  // namespace small_float_test
}  // namespace tern::codec::quantizer
