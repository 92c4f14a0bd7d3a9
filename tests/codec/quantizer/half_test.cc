#include "base/half.h"

#include "quantizer_harness.h"

namespace tern::codec::quantizer {
namespace half_test {

class Half : public testing::TestWithParam<std::string> {
 protected:
  ForcedTarget target_{GetParam()};
  Params bf16_{.kind = Kind::bf16};
  Params fp16_{.kind = Kind::fp16};
};
INSTANTIATE_TEST_SUITE_P(Targets, Half, testing::ValuesIn(target_names()));

TEST_P(Half, WritesTwoBytesRoundedToNearestEven) {
  const std::vector<float> values = {1.0f, -2.0f, 1.00390625f, 1.01171875f};
  EXPECT_EQ(numbers(quantized(bf16_, values).body),
            (std::vector<unsigned>{0x80, 0x3f, 0x00, 0xc0, 0x80, 0x3f, 0x82, 0x3f}));
  EXPECT_EQ(numbers(quantized(fp16_, std::vector{1.0f, -2.0f, 1.00048828125f, 0x1p-24f}).body),
            (std::vector<unsigned>{0x00, 0x3c, 0x00, 0xc0, 0x00, 0x3c, 0x01, 0x00}));
}

TEST_P(Half, RefusesWhatRoundsToInfinity) {
  const float bf16_edge = std::bit_cast<float>(0x7f7f8000u);
  EXPECT_FALSE(quantized(bf16_, std::vector{1.0f, -bf16_edge}).ok);
  EXPECT_TRUE(quantized(bf16_, std::vector{std::nextafter(bf16_edge, 0.0f)}).ok);
  EXPECT_FALSE(quantized(fp16_, std::vector{1.0f, -65520.0f}).ok);
  EXPECT_TRUE(quantized(fp16_, std::vector{std::nextafter(65520.0f, 0.0f)}).ok);
}

TEST_P(Half, ReadsEveryCodeOrRefusesIt) {
  for (unsigned code = 0; code < 0x10000; code += 1) {
    Quantized one{true, {}, {std::byte(code & 0xff), std::byte(code >> 8)}};
    const Dequantized bf16 = dequantized(bf16_, one, 1);
    const Dequantized fp16 = dequantized(fp16_, one, 1);
    const auto half = static_cast<std::uint16_t>(code);
    ASSERT_EQ(bf16.ok, (code & 0x7f80) != 0x7f80) << code;
    ASSERT_EQ(fp16.ok, (code & 0x7c00) != 0x7c00) << code;
    if (bf16.ok) {
      ASSERT_EQ(bits_of(bf16.values)[0], std::bit_cast<std::uint32_t>(bf16_to_f32(half)));
    }
    if (fp16.ok) {
      ASSERT_EQ(bits_of(fp16.values)[0], std::bit_cast<std::uint32_t>(f16_to_f32(half)));
    }
  }
}

TEST_P(Half, ErrorIsHalfAUnitAtMost) {
  const std::vector<float> values = gaussian(5000, kSeed);
  const std::vector<float> bf16 = round_trip(bf16_, values);
  const std::vector<float> fp16 = round_trip(fp16_, values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_LE(std::fabs(bf16[i] - values[i]), std::fabs(values[i]) * 0x1p-8f);
    EXPECT_LE(std::fabs(fp16[i] - values[i]), std::fabs(values[i]) * 0x1p-11f + 0x1p-25f);
  }
}

}  // namespace half_test
}  // namespace tern::codec::quantizer
