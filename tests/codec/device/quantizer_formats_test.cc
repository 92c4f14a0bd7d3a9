#include "codec/device/quantizer_formats.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <random>

namespace tern::codec::device {
namespace quantizer_formats_test {

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }

// Finite values: all upper halves, in which a format of 8 bits has all places where it rounds, with
// lower halves around the place where bf16 rounds.
template <typename Check>
void for_values(Check check) {
  for (std::uint32_t high = 0; high < 0x10000u; ++high) {
    if ((high & 0x7f80u) == 0x7f80u) continue;
    for (const std::uint32_t low : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      check(std::bit_cast<float>(high << 16 | low));
    }
  }
}

template <typename Format, typename Reference>
void expect_same_rounding(const typename Format::Grid& grid, Reference reference) {
  std::uint64_t different = 0;
  for_values([&](float value) {
    const Rounded made = Format::round(value, grid);
    const Rounded expected = reference(value, grid);
    if (made.code != expected.code || bits_of(made.value) != bits_of(expected.value)) ++different;
  });
  EXPECT_EQ(different, 0u);
}

template <typename Format, typename Small>
void expect_fp8_of_the_processor() {
  for (const float largest : {0x1p-149f, 0x1p-100f, 1.0f, 448.0f, 0x1.8p9f, 0x1.fffffep127f}) {
    expect_same_rounding<Format>(Format::grid_of(bits_of(largest)),
                                 [](float value, const quantizer::PowerScale& grid) {
                                   // What a block cannot hold would not be encoded.
                                   const float scaled = value * grid.inverse;
                                   if (bits_of(scaled) << 1 >= 0xff000000u)
                                     return Format::round(value, grid);
                                   const std::uint8_t code = Small::encode(scaled);
                                   return Rounded{code, Small::decode(code) * grid.scale};
                                 });
  }
  for (std::uint32_t code = 0; code < 256; ++code) {
    const bool exists = Small::magnitude_of(static_cast<std::uint8_t>(code)) <= Small::kLargestCode;
    for (unsigned k = 0; k < 4; ++k) EXPECT_EQ(Format::are_codes(code << (8 * k)), exists);
    for (const float scale : {0.0f, 0x1p-149f, 0x1.8p-126f, 1.0f, 0.3f, 0x1p118f}) {
      if (!exists) continue;
      EXPECT_EQ(bits_of(Format::value_of(code, scale)),
                bits_of(Small::decode(static_cast<std::uint8_t>(code)) * scale));
    }
  }
}

TEST(QuantizerFormats, Fp8IsThatOfTheProcessor) {
  expect_fp8_of_the_processor<Fp8E4M3, quantizer::E4M3>();
  expect_fp8_of_the_processor<Fp8E5M2, quantizer::E5M2>();
}

template <unsigned bits>
void expect_integers_of_the_processor() {
  using Format = IntegerFormat<bits>;
  constexpr std::int32_t kLevel = Format::kLevel;
  for (const float largest : {0x1p-149f, 0x1p-126f, 1.0f, 3.7f, 0x1p64f, 0x1.fffffep127f}) {
    const auto grid = Format::grid_of(bits_of(largest));
    expect_same_rounding<Format>(grid, [&](float value, const quantizer::IntegerGrid&) {
      if (!(std::abs(value) <= largest)) return Format::round(value, grid);
      const std::uint8_t code = quantizer::nearest_code(value, grid, kLevel);
      return Rounded{code, quantizer::integer_value(code, grid.step, kLevel)};
    });
  }
  constexpr std::uint32_t kCodes = 1u << bits;
  for (std::uint32_t code = 0; code < kCodes; ++code) {
    for (unsigned k = 0; k < 4; ++k) {
      const auto four = static_cast<typename Format::FourCodes>(code << (bits * k));
      EXPECT_EQ(Format::are_codes(four), code + 1 < kCodes);
    }
    for (const float step : {0.0f, 0x1p-149f, 0.3f, 0x1p120f}) {
      EXPECT_EQ(bits_of(Format::value_of(code, step)),
                bits_of(quantizer::integer_value(static_cast<std::uint8_t>(code), step, kLevel)));
    }
  }
}

TEST(QuantizerFormats, IntegersAreThoseOfTheProcessor) {
  expect_integers_of_the_processor<4>();
  expect_integers_of_the_processor<8>();
}

TEST(QuantizerFormats, Bf16IsThatOfTheProcessor) {
  expect_same_rounding<Bf16Format>({}, [](float value, const Bf16Format::Grid&) {
    const std::uint16_t code = f32_to_bf16(value);
    return Rounded{code, bf16_to_f32(code)};
  });
}

TEST(QuantizerFormats, FourCodesAreJudgedTogether) {
  std::mt19937 engine(1);
  for (int i = 0; i < 100'000; ++i) {
    // Most bytes are near a border.
    std::uint32_t word = 0;
    bool e4m3 = true;
    bool e5m2 = true;
    bool int8 = true;
    for (unsigned k = 0; k < 4; ++k) {
      const std::uint32_t byte = (engine() % 2 == 0 ? engine() : 0x78u | engine() % 8) & 0xffu;
      word |= byte << (8 * k);
      e4m3 = e4m3 && (byte & 0x7fu) <= 0x7eu;
      e5m2 = e5m2 && (byte & 0x7fu) <= 0x7bu;
      int8 = int8 && byte != 0xffu;
    }
    EXPECT_EQ(Fp8E4M3::are_codes(word), e4m3);
    EXPECT_EQ(Fp8E5M2::are_codes(word), e5m2);
    EXPECT_EQ(IntegerFormat<8>::are_codes(word), int8);
  }
  for (std::uint32_t word = 0; word < 0x10000u; ++word) {
    bool int4 = true;
    for (unsigned k = 0; k < 4; ++k) int4 = int4 && (word >> (4 * k) & 15u) != 15u;
    EXPECT_EQ(IntegerFormat<4>::are_codes(static_cast<std::uint16_t>(word)), int4);
  }
}

TEST(QuantizerFormats, ScalesAreFoundWithoutDivision) {
  constexpr std::uint32_t kMost = wire::kMaxBlockElements;
  std::uint64_t different = 0;
  for (std::uint32_t rows = 1; rows < kMost / 32; rows += rows < 1000 ? 1 : 97) {
    const std::uint32_t block = 32 * rows;
    const std::uint32_t reciprocal = ScaleIndex::reciprocal(block, (kMost - 1) / block + 1);
    // Around each border: the quotient changes nowhere else.
    for (std::uint32_t border = 0; border < kMost; border += block) {
      if (ScaleIndex::of(border, reciprocal) != border / block) ++different;
      if (border != 0 && ScaleIndex::of(border - 1, reciprocal) != border / block - 1) ++different;
    }
  }
  EXPECT_EQ(different, 0u);
  EXPECT_EQ(ScaleIndex::of(kMost - 1, ScaleIndex::reciprocal(0, 1)), 0u);
}

}  // namespace quantizer_formats_test
}  // namespace tern::codec::device
