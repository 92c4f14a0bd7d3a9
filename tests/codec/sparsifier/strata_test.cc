#include <cmath>
#include <cstring>

#include "base/random.h"
#include "sparsifier_harness.h"

namespace tern::codec::sparsifier {
namespace strata_test {

constexpr int kDraws = 20000;

TEST(RandomK, IsUnbiasedWithTheExactVariance) {
  const std::vector<float> x = {1.0f, -2.0f, 3.0f, -4.0f, 0.5f, 0.0f, 1.5f, -2.5f};
  const Params params = {.kind = Kind::randk, .count = 2};
  std::vector<double> mean(x.size());
  double error = 0.0;
  for (std::uint64_t key = 0; key < kDraws; ++key) {
    const auto sent = scattered(
        select_guarded(params, x, {.key = mixed_key(71, key), .unbiased = true}), x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      mean[i] += static_cast<double>(sent[i]) / kDraws;
      error += (static_cast<double>(sent[i]) - x[i]) * (static_cast<double>(sent[i]) - x[i]);
    }
  }
  EXPECT_DOUBLE_EQ(omega(params, x.size()), 3.0);
  // 2 of 8: (8/2 - 1) times 38.75.
  EXPECT_NEAR(error / kDraws, 116.25, 0.05 * 116.25);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double sigma = std::fabs(static_cast<double>(x[i])) * std::sqrt(3.0);
    EXPECT_LE(std::fabs(mean[i] - static_cast<double>(x[i])),
              5.0 * sigma / std::sqrt(kDraws) + 1e-12)
        << i;
  }
}

TEST(RandomK, UnevenStrataAreUnbiasedToo) {
  // 11 in 4: strata of 2, 3, 3 and 3.
  const auto x = gaussian(11, 2);
  const Params params = {.kind = Kind::randk, .count = 4};
  std::vector<double> mean(x.size());
  for (std::uint64_t key = 0; key < kDraws; ++key) {
    const Selected selected =
        select_guarded(params, x, {.key = mixed_key(72, key), .unbiased = true});
    ASSERT_EQ(selected.kept.size(), 4u);
    const auto sent = scattered(selected, x.size());
    for (std::size_t i = 0; i < x.size(); ++i) mean[i] += static_cast<double>(sent[i]) / kDraws;
  }
  EXPECT_DOUBLE_EQ(omega(params, x.size()), 2.0);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double sigma = std::fabs(static_cast<double>(x[i])) * std::sqrt(2.0);
    EXPECT_LE(std::fabs(mean[i] - static_cast<double>(x[i])), 5.0 * sigma / std::sqrt(kDraws)) << i;
  }
}

TEST(BlockSparse, KeepsWholeBlocksOneOfEachStratum) {
  const auto x = gaussian(1000, 3);
  const Params params = {.kind = Kind::blocksparse, .block = 64, .count = 4};
  for (std::uint64_t key = 0; key < 200; ++key) {
    const Selected selected = select_guarded(params, x, {.key = mixed_key(5, key)});
    std::size_t at = 0;
    for (std::size_t stratum = 0; stratum < 4; ++stratum) {
      const std::size_t begin = selected.positions[at];
      ASSERT_EQ(begin % 64, 0u);
      ASSERT_EQ(begin / 64 / 4, stratum);  // 16 blocks, four to a stratum
      for (; at < selected.positions.size() && selected.positions[at] / 64 == begin / 64; ++at) {
      }
      ASSERT_EQ(selected.positions[at - 1], std::min<std::size_t>(begin + 63, 999));
    }
    ASSERT_EQ(at, selected.positions.size());
  }
}

TEST(RandomK, SectionIsKeyCountAndBlock) {
  const Selected selected =
      select_guarded({.kind = Kind::randk, .count = 3}, gaussian(9, 1), {.key = 0x1122});
  std::vector<std::byte> want(16);
  want[0] = std::byte{0x22};
  want[1] = std::byte{0x11};
  want[8] = std::byte{3};
  want[12] = std::byte{1};
  EXPECT_EQ(selected.section, want);
}

TEST(RandomK, RefusesImpossibleSections) {
  std::uint32_t positions[9];
  Selection read;
  const auto refused = [&](Kind kind, std::uint32_t count, std::uint32_t block) {
    std::vector<std::byte> bytes(16);
    std::memcpy(bytes.data() + 8, &count, 4);
    std::memcpy(bytes.data() + 12, &block, 4);
    return !read_section({kind, bytes, 9}, positions, read);
  };
  EXPECT_FALSE(refused(Kind::randk, 9, 1));
  EXPECT_TRUE(refused(Kind::randk, 10, 1));
  EXPECT_TRUE(refused(Kind::randk, 0, 1));
  EXPECT_TRUE(refused(Kind::randk, 1, 2));
  EXPECT_TRUE(refused(Kind::blocksparse, 1, 0));
  EXPECT_FALSE(refused(Kind::blocksparse, 1, 0xffffffffu));
  EXPECT_TRUE(refused(Kind::blocksparse, 2, 0xffffffffu));
}

// Gradient descent on a convex quadratic of ten workers with a common optimum, each sending one
// tenth of its gradient unscaled. Drawn independently, the tenths of a step add up to a whole
// gradient; drawn alike they do not (Mishchenko, Hanzely and Richtarik, UAI 2020).
class Descent {
 public:
  enum class Masks { none, independent, same };

  // Iterations until the error is 1e-6 of the first.
  static int iterations(Masks masks) {
    const std::size_t elements = 100;
    const int workers = 10;
    const Params params = {.kind = Kind::randk, .count = 10};
    const double tau = masks == Masks::none ? 1.0 : 0.1;
    // 1 / (L (tau + (1 - tau) / n)); with one mask the estimate has the variance of one worker.
    const double step = masks == Masks::independent ? 1.0 / (tau + (1.0 - tau) / workers) : 1.0;
    std::vector<double> x(elements, 1.0);
    for (int k = 1; k < 100000; ++k) {
      std::vector<double> sum(elements);
      for (int worker = 0; worker < workers; ++worker) {
        std::vector<float> gradient(elements);
        for (std::size_t i = 0; i < elements; ++i) {
          gradient[i] = static_cast<float>(curvature(i) * x[i]);
        }
        if (masks == Masks::none) {
          for (std::size_t i = 0; i < elements; ++i) sum[i] += static_cast<double>(gradient[i]);
          continue;
        }
        const std::uint64_t node = masks == Masks::same ? 0 : static_cast<std::uint64_t>(worker);
        const std::uint64_t key = mixed_key(mixed_key(17, static_cast<std::uint64_t>(k)), node);
        const auto sent = scattered(select_guarded(params, gradient, {.key = key}), elements);
        for (std::size_t i = 0; i < elements; ++i) sum[i] += static_cast<double>(sent[i]);
      }
      double error = 0.0;
      for (std::size_t i = 0; i < elements; ++i) {
        x[i] -= step * sum[i] / workers;
        error += x[i] * x[i];
      }
      if (error < 1e-6 * static_cast<double>(elements)) return k;
    }
    return 100000;
  }

 private:
  // Between 0.2 and 1, so that L is 1.
  static double curvature(std::size_t i) { return 0.2 + 0.8 * static_cast<double>(i % 10) / 9.0; }
};

TEST(RandomK, IndependentMasksCostLittleAndSameMasksCostMuch) {
  const int plain = Descent::iterations(Descent::Masks::none);
  EXPECT_LE(Descent::iterations(Descent::Masks::independent), 3 * plain);
  EXPECT_GE(Descent::iterations(Descent::Masks::same), 8 * plain);
}

}  // namespace strata_test
}  // namespace tern::codec::sparsifier
