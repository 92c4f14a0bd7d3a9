#include <algorithm>
#include <limits>

#include "codec/quantizer/lloyd_training.h"
#include "codec/quantizer/pack.h"
#include "quantizing.h"

namespace tern::codec::quantizer {
namespace lloyd_test {

Params lloyd(std::uint8_t bits) { return {.kind = Kind::lloyd, .bits = bits}; }

std::vector<float> levels_of(const Quantized& codes) {
  std::vector<float> levels(codes.side.size() / 4);
  std::memcpy(levels.data(), codes.side.data(), codes.side.size());
  return levels;
}

std::vector<float> laplacian(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::exponential_distribution<float> tail(std::sqrt(2.0f));
  std::vector<float> values(count);
  for (float& value : values) value = (engine() & 1) != 0 ? tail(engine) : -tail(engine);
  return values;
}

TEST(Lloyd, SameBytesOnEveryTarget) {
  for (std::uint8_t bits = 1; bits <= 6; ++bits) expect_same_everywhere(lloyd(bits));
}

TEST(Lloyd, HostileBytes) {
  for (std::uint8_t bits = 1; bits <= 6; ++bits) expect_hostile_bytes_do_no_harm(lloyd(bits));
}

TEST(Lloyd, RefusesDescendingLevelsAndBitsBeyondTheEnd) {
  Quantized codes = quantized(lloyd(2), gaussian(9, 1));
  std::vector<float> out(9);
  EXPECT_TRUE(dequantize(lloyd(2), codes.side.data(), codes.body.data(), out));
  codes.body.back() |= std::byte{4};
  EXPECT_FALSE(dequantize(lloyd(2), codes.side.data(), codes.body.data(), out));
  codes.body.back() &= std::byte{3};
  std::swap_ranges(codes.side.begin(), codes.side.begin() + 4, codes.side.begin() + 4);
  EXPECT_FALSE(dequantize(lloyd(2), codes.side.data(), codes.body.data(), out));
}

// Lloyd and Max's numbers for a million values.
TEST(Lloyd, ReachesTheKnownOptima) {
  struct Row {
    std::uint8_t bits;
    double gaussian;
    double laplacian;  // 0: not known
  };
  const Row rows[] = {{1, 0.36338, 0.5},      {2, 0.117482, 0.176195}, {3, 0.034548, 0.054476},
                      {4, 0.00950, 0.015373}, {5, 0.002505, 0.0},      {6, 0.000644, 0.0}};
  const auto normal = gaussian(1000000, 101);
  const auto tails = laplacian(1000000, 102);
  for (const Row& row : rows) {
    SCOPED_TRACE(testing::Message() << static_cast<int>(row.bits) << " bits, seeds 101 and 102");
    const auto error = [&](const std::vector<float>& values) {
      const Quantized codes = quantized(lloyd(row.bits), values);
      const auto back = decoded(lloyd(row.bits), codes, values.size());
      return squared_error(back, values) / energy(values);
    };
    EXPECT_NEAR(error(normal), row.gaussian, 0.01 * row.gaussian);
    if (row.laplacian != 0.0) {
      EXPECT_NEAR(error(tails), row.laplacian, 0.01 * row.laplacian);
    }
  }
  const auto levels = levels_of(quantized(lloyd(2), normal));
  EXPECT_NEAR(levels[0], -1.51042, 0.02);
  EXPECT_NEAR(levels[1], -0.45278, 0.02);
  EXPECT_NEAR(levels[2], 0.45278, 0.02);
  EXPECT_NEAR(levels[3], 1.51042, 0.02);
}

// The optimum for a Gaussian of unit variance, from its density and not from samples: Lloyd's
// iteration with the exact mean of each cell.
struct Optimum {
  std::vector<double> levels;
  double error = 0.0;
  double entropy = 0.0;  // of the codes, in bits
};

Optimum gaussian_optimum(std::size_t number) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto density = [](double x) { return std::exp(-x * x / 2) / std::sqrt(2 * M_PI); };
  const auto below = [](double x) { return std::erfc(-x / std::sqrt(2.0)) / 2; };
  Optimum result{std::vector<double>(number), 1.0, 0.0};
  for (std::size_t i = 0; i < number; ++i) {
    result.levels[i] = 3.0 * (2.0 * static_cast<double>(i) + 1.0) / static_cast<double>(number) - 3;
  }
  std::vector<double> share(number);
  for (int iteration = 0; iteration < 20000; ++iteration) {
    double from = -kInfinity;
    const auto before = result.levels;
    for (std::size_t i = 0; i < number; ++i) {
      const double to = i + 1 < number ? (before[i] + before[i + 1]) / 2 : kInfinity;
      share[i] = below(to) - below(from);
      result.levels[i] = (density(from) - density(to)) / share[i];
      from = to;
    }
  }
  for (std::size_t i = 0; i < number; ++i) {
    result.error -= share[i] * result.levels[i] * result.levels[i];
    result.entropy -= share[i] * std::log2(share[i]);
  }
  return result;
}

TEST(Lloyd, LevelsAndEntropyAreThoseOfTheDensity) {
  const Optimum four = gaussian_optimum(4);
  EXPECT_NEAR(four.levels[2], 0.45278, 1e-5);
  EXPECT_NEAR(four.levels[3], 1.51042, 1e-5);
  EXPECT_NEAR(four.entropy, 1.9111, 1e-4);
  EXPECT_NEAR(gaussian_optimum(16).error, 0.00950, 1e-5);
  EXPECT_NEAR(gaussian_optimum(64).error, 0.000644, 1e-6);
  const auto values = gaussian(1000000, 101);
  for (std::uint8_t bits = 1; bits <= 6; ++bits) {
    SCOPED_TRACE(testing::Message() << static_cast<int>(bits) << " bits, seed 101");
    const Optimum optimum = gaussian_optimum(std::size_t{1} << bits);
    const Quantized codes = quantized(lloyd(bits), values);
    const auto back = decoded(lloyd(bits), codes, values.size());
    EXPECT_NEAR(squared_error(back, values) / energy(values), optimum.error, 0.01 * optimum.error);
    std::vector<std::uint8_t> each(values.size());
    unpack_codes(reinterpret_cast<const std::uint8_t*>(codes.body.data()), values.size(), bits,
                 each.data());
    std::vector<double> counts(std::size_t{1} << bits);
    for (const std::uint8_t code : each) counts[code] += 1.0;
    double entropy = 0.0;
    for (const double count : counts) {
      const double share = count / static_cast<double>(values.size());
      if (count != 0.0) entropy -= share * std::log2(share);
    }
    EXPECT_NEAR(entropy, optimum.entropy, 0.01 * optimum.entropy);
    if (bits > 3) continue;  // found from a sample, in which the outermost cells are rare
    const auto levels = levels_of(codes);
    for (std::size_t i = 0; i < levels.size(); ++i) {
      EXPECT_NEAR(static_cast<double>(levels[i]), optimum.levels[i], 0.03) << i;
    }
  }
}

TEST(Lloyd, ErrorNeverGrowsFromOneIterationToTheNext) {
  for (const std::size_t number : {2u, 4u, 8u, 16u, 32u, 64u}) {
    for (int shape = 0; shape < 3; ++shape) {
      auto values = gaussian(5000, 55);
      if (shape == 1) values = laplacian(5000, 56);
      // Ten magnitudes and many cells without a value.
      if (shape == 2) {
        for (float& value : values) value = std::round(value * 1.5f) + 1000.0f;
      }
      const Sample sample = {values.data(), values.size(), 1};
      std::vector<float> levels(number);
      first_levels(sample, levels);
      double before = INFINITY;
      for (int i = 0; i < 60; ++i) {
        const double error = improve(sample, levels);
        ASSERT_LE(error, before * (1.0 + 1e-5)) << number << ' ' << shape << ' ' << i;
        ASSERT_TRUE(std::is_sorted(levels.begin(), levels.end()));
        before = error;
      }
      // As many levels as there are values: nothing is left.
      if (shape == 2 && number >= 16) {
        EXPECT_EQ(before, 0.0) << number;
      }
    }
  }
}

TEST(Lloyd, FollowsTheCodebookOfTheStepBefore) {
  std::vector<float> codebook(16);
  const Params params = lloyd(4);
  Input input;
  input.codebook = codebook.data();
  const auto first = gaussian(65536, 7);
  EXPECT_EQ(levels_of(quantized(params, first, input)), codebook);
  // Another draw, a little wider: two iterations find it.
  auto next = gaussian(65536, 8);
  for (float& value : next) value *= 1.1f;
  const auto before = codebook;
  const Quantized codes = quantized(params, next, input);
  EXPECT_NE(codebook, before);
  EXPECT_EQ(levels_of(codes), codebook);
  EXPECT_LT(squared_error(decoded(params, codes, next.size()), next) / energy(next), 0.0105);
  // What is no codebook is not followed.
  codebook[3] = NAN;
  EXPECT_EQ(levels_of(quantized(params, first, input)), levels_of(quantized(params, first)));
}

TEST(Lloyd, SpecialValues) {
  constexpr float kLarge = std::numeric_limits<float>::max();
  for (std::uint8_t bits = 1; bits <= 6; ++bits) {
    for (const float value :
         {0.0f, 1.5f, -kLarge, kLarge, std::numeric_limits<float>::denorm_min()}) {
      const std::vector<float> values(70, value);
      EXPECT_EQ(decoded(lloyd(bits), quantized(lloyd(bits), values), 70), values);
    }
    const std::vector<float> both = {kLarge, -kLarge, kLarge};
    EXPECT_EQ(decoded(lloyd(bits), quantized(lloyd(bits), both), 3), both);
  }
}

TEST(Pack, IsLittleEndianInBitsAndReversible) {
  const std::uint8_t codes[] = {1, 2, 3, 4, 5, 6, 7, 0, 1};
  std::uint8_t bytes[5] = {};
  pack_codes(codes, 9, 3, bytes);
  // 001 010 011 100 101 110 111 000 from the low end: 0x1f58d1.
  EXPECT_EQ(bytes[0], 0xd1);
  EXPECT_EQ(bytes[1], 0x58);
  EXPECT_EQ(bytes[2], 0x1f);
  EXPECT_EQ(bytes[3], 0x01);
  pack_codes(codes, 3, 4, bytes);
  EXPECT_EQ(bytes[0], 0x21);
  EXPECT_EQ(bytes[1], 0x03);
  std::mt19937_64 random(1);
  for (unsigned bits = 1; bits <= 7; ++bits) {
    for (std::size_t count = 0; count < 40; ++count) {
      Guarded<std::uint8_t> in(count);
      for (std::uint8_t& code : in.span()) {
        code = static_cast<std::uint8_t>(random() & ((1u << bits) - 1));
      }
      Guarded<std::uint8_t> packed(packed_bytes(count, bits), 0, 0xa5);
      pack_codes(in.data(), count, bits, packed.data());
      Guarded<std::uint8_t> out(count, 0, 0xa5);
      unpack_codes(packed.data(), count, bits, out.data());
      ASSERT_TRUE(packed.intact() && out.intact());
      ASSERT_TRUE(std::equal(in.span().begin(), in.span().end(), out.span().begin()));
    }
  }
}

}  // namespace lloyd_test
}  // namespace tern::codec::quantizer
