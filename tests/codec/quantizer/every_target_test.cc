// What every quantizer promises: one set of bytes on all targets, in pieces as in one, and nothing
// written or accepted that should not be.
#include "quantizer_harness.h"

namespace tern::codec::quantizer {
namespace every_target_test {

struct Row {
  const char* name;
  Params params;
};

Params of(Kind kind, unsigned bits = 0, std::uint32_t block = 0, bool flag = false) {
  Params params;
  params.kind = kind;
  params.bits = static_cast<std::uint8_t>(bits);
  params.block = block;
  params.stochastic = flag;
  params.rounding = flag;
  return params;
}

std::vector<Row> rows() {
  std::vector<Row> all = {{"raw", of(Kind::raw)},
                          {"bf16", of(Kind::bf16)},
                          {"fp16", of(Kind::fp16)},
                          {"fp8_e4m3", of(Kind::fp8_e4m3, 0, 0)},
                          {"fp8_e4m3_96", of(Kind::fp8_e4m3, 0, 96)},
                          {"fp8_e5m2_256", of(Kind::fp8_e5m2, 0, 256)},
                          {"mxfp8_e4m3", of(Kind::mxfp8_e4m3)},
                          {"mxfp8_e5m2", of(Kind::mxfp8_e5m2)},
                          {"mxfp4", of(Kind::mxfp4)},
                          {"natural", of(Kind::natural)},
                          {"integer_8_whole", of(Kind::integer, 8, 0, true)}};
  for (unsigned bits = 2; bits <= 8; ++bits) {
    all.push_back({"integer_nearest", of(Kind::integer, bits, 96, false)});
    all.push_back({"integer_stochastic", of(Kind::integer, bits, 256, true)});
  }
  for (unsigned keep = 1; keep <= 23; ++keep) {
    all.push_back({"bitmask_nearest", of(Kind::bitmask, keep, 0, true)});
    all.push_back({"bitmask_cut", of(Kind::bitmask, keep, 0, false)});
  }
  return all;
}

std::vector<std::size_t> lengths() {
  std::vector<std::size_t> all;
  for (std::size_t n = 0; n <= 70; ++n) all.push_back(n);
  for (const unsigned n : {95u, 96u, 97u, 127u, 128u, 129u, 255u, 256u, 257u, 511u, 512u, 513u,
                           1000u, 4095u, 4096u, 4097u, 4608u, 8200u, 12288u}) {
    all.push_back(n);
  }
  return all;
}

// Magnitudes from subnormal to large among ordinary ones, but none that a format refuses.
std::vector<float> mixed_values(std::size_t count) {
  std::vector<float> values = gaussian(count, kSeed);
  const float special[] = {0.0f, -0.0f, 1e-40f, -1e-45f, 1e-7f, -3e-5f, 448.0f, -60000.0f, 1.0f};
  for (std::size_t i = 0; i < count; i += 7) values[i] = special[(i / 7) % std::size(special)];
  return values;
}

Input draws_at(std::uint32_t position) {
  Input draws;
  draws.key = kSeed * kSeed;
  draws.position = position;
  return draws;
}

TEST(EveryQuantizer, IsTheScalarReferenceOnEveryTarget) {
  for (const Row& row : rows()) {
    for (const std::size_t count : lengths()) {
      const std::vector<float> values = mixed_values(count);
      Quantized expected;
      std::vector<std::uint32_t> decoded;
      {
        const ForcedTarget scalar("scalar");
        expected = quantized(row.params, values, draws_at(0xfffffff0u));
        const Dequantized back = dequantized(row.params, expected, count);
        ASSERT_TRUE(expected.ok && back.ok) << row.name << ' ' << count;
        decoded = bits_of(back.values);
      }
      for (const std::string& name : target_names()) {
        const ForcedTarget forced(name);
        const std::size_t shift = 1 + count % 5;
        const Quantized codes = quantized(row.params, values, draws_at(0xfffffff0u), shift);
        ASSERT_EQ(codes, expected)
            << row.name << ' ' << int{row.params.bits} << ' ' << name << ' ' << count;
        const Dequantized back = dequantized(row.params, codes, count, shift);
        ASSERT_TRUE(back.ok);
        ASSERT_EQ(bits_of(back.values), decoded)
            << row.name << ' ' << int{row.params.bits} << ' ' << name << ' ' << count;
      }
    }
  }
}

TEST(EveryQuantizer, WritesPiecesAsTheWhole) {
  constexpr std::size_t kCount = 3 * 4096 + 77;
  const std::vector<float> values = mixed_values(kCount);
  for (const Row& row : rows()) {
    const std::size_t piece = piece_elements(row.params);
    if (piece == 0) {
      EXPECT_EQ(row.params.block, 0u);
      continue;
    }
    EXPECT_EQ(piece % 64, 0u) << row.name;
    if (row.params.block != 0) {
      EXPECT_EQ(piece % row.params.block, 0u);
    }
    const Quantized whole = quantized(row.params, values, draws_at(5));
    Quantized parts;
    for (std::size_t begin = 0; begin < kCount;) {
      const std::size_t count = std::min(piece * (1 + begin % 3), kCount - begin);
      const Quantized part = quantized(row.params, std::span(values).subspan(begin, count),
                                       draws_at(5 + static_cast<std::uint32_t>(begin)));
      parts.side.insert(parts.side.end(), part.side.begin(), part.side.end());
      parts.body.insert(parts.body.end(), part.body.begin(), part.body.end());
      begin += count;
    }
    EXPECT_EQ(parts.side, whole.side) << row.name;
    EXPECT_EQ(parts.body, whole.body) << row.name << ' ' << int{row.params.bits};
  }
}

TEST(EveryQuantizer, KeepsZerosZero) {
  for (const Row& row : rows()) {
    for (const std::size_t count : {1u, 4u, 5u, 6u, 300u}) {
      for (const float value : round_trip(row.params, std::vector<float>(count))) {
        ASSERT_EQ(value, 0.0f) << row.name;
      }
    }
  }
}

TEST(EveryQuantizer, HoldsTheWholeRangeOfF32OrRefuses) {
  constexpr float kMost = std::numeric_limits<float>::max();
  constexpr float kLeast = std::numeric_limits<float>::denorm_min();
  for (const Row& row : rows()) {
    for (const float extreme : {kMost, -kMost, 0x1p127f, kLeast, 3 * kLeast, -0x1p-126f}) {
      std::vector<float> values(200, extreme);
      values[3] = extreme * 0.5f;
      for (const std::string& name : target_names()) {
        const ForcedTarget forced(name);
        const Quantized codes = quantized(row.params, values, draws_at(0));
        if (!codes.ok) {
          EXPECT_GE(std::fabs(extreme), 0x1p127f) << row.name;
          continue;
        }
        const Dequantized back = dequantized(row.params, codes, values.size());
        EXPECT_TRUE(back.ok) << row.name << ' ' << extreme;
        for (const float value : back.values) ASSERT_TRUE(std::isfinite(value)) << row.name;
      }
    }
  }
}

// Foreign bytes: anything may be refused, nothing outside may be touched, and what is accepted is
// the same everywhere and finite.
TEST(EveryQuantizer, TakesForeignBytes) {
  std::mt19937_64 engine(kSeed);
  for (const Row& row : rows()) {
    if (row.params.kind == Kind::raw) continue;
    for (const std::size_t count : {1u, 33u, 700u, 4100u}) {
      for (unsigned round = 0; round < 8; ++round) {
        const Sizes room = sizes(row.params, count);
        Quantized codes{true, std::vector<std::byte>(room.side), std::vector<std::byte>(room.body)};
        for (std::byte& byte : codes.side) byte = static_cast<std::byte>(engine() & 0x7f);
        for (std::byte& byte : codes.body) byte = static_cast<std::byte>(engine());
        if (round % 2 == 0) {
          std::fill(codes.body.begin(), codes.body.end(), std::byte{0x11});
        }
        bool expected = false;
        {
          const ForcedTarget scalar("scalar");
          expected = dequantized(row.params, codes, count).ok;
        }
        for (const std::string& name : target_names()) {
          const ForcedTarget forced(name);
          const Dequantized back = dequantized(row.params, codes, count);
          ASSERT_EQ(back.ok, expected) << row.name << ' ' << name << " seed " << kSeed;
          for (const float value : back.values) ASSERT_TRUE(!back.ok || std::isfinite(value));
        }
      }
    }
  }
}

TEST(EveryQuantizer, ParametersThatDoNotExistAreNotValid) {
  for (const unsigned bits : {0u, 1u, 9u, 200u}) EXPECT_FALSE(valid(of(Kind::integer, bits, 64)));
  for (const unsigned bits : {0u, 24u, 255u}) EXPECT_FALSE(valid(of(Kind::bitmask, bits)));
  for (const unsigned bits : {0u, 7u}) EXPECT_FALSE(valid(of(Kind::lloyd, bits)));
  EXPECT_FALSE(valid(of(Kind::integer, 8, 33)));
  EXPECT_FALSE(valid(of(Kind::fp8_e4m3, 0, 31)));
  EXPECT_FALSE(valid(of(Kind::mxfp4, 0, 64)));
  EXPECT_FALSE(valid(of(Kind::natural, 0, 64)));
  EXPECT_FALSE(valid(of(Kind::threelc, 0)));
  EXPECT_TRUE(valid(of(Kind::integer, 8, 64)));
  EXPECT_TRUE(valid(of(Kind::mxfp4, 0, 32)));
}

}  // namespace every_target_test
}  // namespace tern::codec::quantizer
