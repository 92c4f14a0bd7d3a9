#include "quantizing.h"

namespace tern::codec::quantizer {
namespace onebit_test {

Params onebit(std::uint32_t block = 0) { return {.kind = Kind::onebit, .block = block}; }

TEST(Onebit, SameBytesOnEveryTargetAndByPieces) {
  for (const std::uint32_t block : {0u, 64u, 100u, 4096u}) expect_same_everywhere(onebit(block));
}

TEST(Onebit, HostileBytes) {
  for (const std::uint32_t block : {0u, 64u, 100u}) expect_hostile_bytes_do_no_harm(onebit(block));
}

TEST(Onebit, WorkedBytes) {
  const std::vector<float> values = {1.0f, -2.0f, 3.0f, -4.0f, 0.0f, -0.0f, 4.0f, -3.0f, 2.0f};
  const Quantized codes = quantized(onebit(), values);
  // The means -3 and 10 / 6.
  EXPECT_EQ(codes.body, (std::vector<std::byte>{std::byte{0x75}, std::byte{0x01}}));
  const auto back = decoded(onebit(), codes, values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(back[i], values[i] < 0.0f ? -3.0f : 10.0f / 6.0f) << i;
  }
}

TEST(Onebit, NoTwoOtherLevelsAreNearer) {
  const auto values = gaussian(1000, 4);
  const auto back = decoded(onebit(), quantized(onebit(), values), values.size());
  const double best = squared_error(back, values);
  for (const float factor : {0.9f, 0.99f, 1.01f, 1.1f}) {
    auto other = back;
    for (float& value : other) value *= factor;
    EXPECT_GT(squared_error(other, values), best);
  }
  // 1 - 2/pi of the energy of a Gaussian.
  EXPECT_NEAR(best / energy(values), 0.36338, 0.03);
}

// A level for each sign leaves |x|^2 - P^2 / p - N^2 / n, where P and N are the sums of magnitudes
// and p and n the counts of the two sides; one level for both, as in EF-signSGD, leaves |x|^2 -
// (P + N)^2 / (p + n), which is never less.
TEST(Onebit, ContractsAtLeastAsTheScaledSign) {
  const auto left_of = [](const std::vector<float>& values) {
    const auto back = decoded(onebit(), quantized(onebit(), values), values.size());
    return squared_error(back, values) / energy(values);
  };
  EXPECT_NEAR(left_of(kVector), 1 - (6.0 * 6.0 / 5 + 8.5 * 8.5 / 3) / 38.75, 1e-6);
  EXPECT_LT(left_of(kVector), 0.3217742);
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    auto values = gaussian(1 + seed * 7, seed);
    if (seed % 2 == 1) {
      for (float& value : values) value = value * value * value + 0.3f;
    }
    double sum = 0;
    for (const float value : values) sum += std::fabs(static_cast<double>(value));
    const double sign = 1 - sum * sum / (static_cast<double>(values.size()) * energy(values));
    EXPECT_LE(left_of(values), sign + 1e-6) << seed;
  }
  // Equal magnitudes, of both signs or of one, are sent as they are.
  EXPECT_EQ(left_of({3.0f, -3.0f, -3.0f}), 0.0);
}

TEST(Onebit, SpecialValues) {
  constexpr float kLarge = std::numeric_limits<float>::max();
  for (const std::vector<float>& values :
       {std::vector<float>(5, 0.0f), std::vector<float>(70, kLarge),
        std::vector<float>(70, -kLarge),
        std::vector<float>(6, std::numeric_limits<float>::denorm_min())}) {
    const Quantized codes = quantized(onebit(), values);
    ASSERT_TRUE(codes.ok);
    EXPECT_EQ(decoded(onebit(), codes, values.size()), values);
  }
  EXPECT_LT(omega(onebit(), 10), 0.0);
}

TEST(Onebit, RefusesMeansOnTheWrongSideAndBitsBeyondTheEnd) {
  const auto values = gaussian(13, 4);
  Quantized codes = quantized(onebit(), values);
  std::vector<float> out(13);
  codes.body[1] |= std::byte{0x80};
  EXPECT_FALSE(dequantize(onebit(), codes.side.data(), codes.body.data(), out));
  codes.body[1] &= std::byte{0x1f};
  EXPECT_TRUE(dequantize(onebit(), codes.side.data(), codes.body.data(), out));
  codes.side[3] ^= std::byte{0x80};
  EXPECT_FALSE(dequantize(onebit(), codes.side.data(), codes.body.data(), out));
}

}  // namespace onebit_test
}  // namespace tern::codec::quantizer
