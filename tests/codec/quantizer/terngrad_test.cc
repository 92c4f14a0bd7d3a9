#include "quantizing.h"

namespace tern::codec::quantizer {
namespace terngrad_test {

Params terngrad(float clip = 0.0f, std::uint32_t block = 0) {
  return {.kind = Kind::terngrad, .block = block, .clip = clip};
}

TEST(Terngrad, SameBytesOnEveryTargetAndByPieces) {
  for (const Params& params :
       {terngrad(), terngrad(2.5f), terngrad(2.5f, 128), terngrad(0.0f, 4096)}) {
    expect_same_everywhere(params);
  }
}

TEST(Terngrad, HostileBytes) { expect_hostile_bytes_do_no_harm(terngrad(2.5f, 64)); }

TEST(Terngrad, IsUnbiasedWithTheExactVariance) {
  const Drawn drawn = draw_many(terngrad(), kVector);
  EXPECT_NEAR(drawn.variance, 19.25, 0.05 * 19.25);
  for (std::size_t i = 0; i < kVector.size(); ++i) {
    const double x = static_cast<double>(kVector[i]);
    const double sigma = std::sqrt(std::fabs(x) * (4.0 - std::fabs(x)));
    EXPECT_LE(std::fabs(drawn.mean[i] - x), 5.0 * sigma / std::sqrt(kDraws) + 1e-6) << i;
  }
  EXPECT_NEAR(omega(terngrad(), 64), 3.5, 1e-12);
}

TEST(Terngrad, ClipsAtStandardDeviations) {
  EXPECT_LT(omega(terngrad(2.5f), 64), 0.0);
  // Root mean square sqrt(38.75 / 8), so that 4 is clipped at 1.5 of them and 3 is not.
  const Drawn drawn = draw_many(terngrad(1.5f), kVector);
  const double limit = 1.5 * std::sqrt(38.75 / 8.0);
  EXPECT_NEAR(drawn.mean[3], -limit, 1e-6);
  EXPECT_NEAR(drawn.mean[2], 3.0, 0.05);
  EXPECT_NEAR(drawn.mean[1], -2.0, 0.07);
}

TEST(Terngrad, WorkedBytes) {
  // Every element is zero or the largest, so that nothing is left to chance: L = 2, the digits
  // 2 1 0 2 1 1 1 0 and two pads; columns 2 0 1 1 p and 1 2 1 0 p.
  const std::vector<float> values = {2.0f, 0.0f, -2.0f, 2.0f, 0.0f, 0.0f, 0.0f, -2.0f};
  const Quantized codes = quantized(terngrad(), values);
  EXPECT_EQ(codes.side, (std::vector<std::byte>{{}, {}, {}, std::byte{0x40}}));
  EXPECT_EQ(codes.body, (std::vector<std::byte>{std::byte{2 * 81 + 0 + 9 + 3 + 1},
                                                std::byte{81 + 54 + 9 + 0 + 1}}));
  EXPECT_EQ(decoded(terngrad(), codes, 8), values);
}

}  // namespace terngrad_test
}  // namespace tern::codec::quantizer
