#include <algorithm>
#include <cmath>
#include <numeric>

#include "sparsifier_harness.h"

namespace tern::codec::sparsifier {
namespace topk_test {

TEST(TopK, ExactKeepsTheLargestAndOfTiesTheFirst) {
  constexpr std::uint64_t kSeed = 8;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::mt19937_64 random(kSeed);
  for (const std::size_t elements : {1u, 5u, 64u, 100u, 1000u, 4097u}) {
    for (int round = 0; round < 20; ++round) {
      std::vector<float> values(elements);
      // Few different magnitudes on odd rounds, so that there are ties.
      for (float& value : values) {
        value = round % 2 == 0 ? std::normal_distribution<float>()(random)
                               : static_cast<float>(static_cast<int>(random() % 9) - 4);
      }
      const std::size_t count = 1 + random() % elements;
      std::vector<std::uint32_t> order(elements);
      std::iota(order.begin(), order.end(), 0u);
      std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
        return std::fabs(values[a]) > std::fabs(values[b]);
      });
      order.resize(count);
      std::sort(order.begin(), order.end());
      const Params params = {
          .kind = Kind::topk, .exact = true, .count = static_cast<std::uint32_t>(count)};
      for (const std::string& name : target_names()) {
        const ForcedTarget forced(name);
        ASSERT_EQ(select_guarded(params, values).positions, order) << name;
      }
    }
  }
}

TEST(TopK, ExactContractsByKOfN) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const auto values = gaussian(1000, seed);
    for (const std::uint32_t count : {1u, 10u, 100u, 500u}) {
      const Selected selected =
          select_guarded({.kind = Kind::topk, .exact = true, .count = count}, values);
      EXPECT_GE(energy(selected.kept), energy(values) * count / 1000.0);
    }
  }
  // Equality where all are equal.
  const std::vector<float> equal(1000, -2.0f);
  const Selected selected = select_guarded({.kind = Kind::topk, .exact = true, .count = 10}, equal);
  EXPECT_EQ(energy(selected.kept), 40.0);
}

TEST(TopK, SamplingKeepsAboutKOfManyDistributions) {
  constexpr std::size_t kElements = 65536;
  for (const float share : {0.001f, 0.01f, 0.1f}) {
    for (int shape = 0; shape < 4; ++shape) {
      auto values = gaussian(kElements, 30 + static_cast<std::uint64_t>(shape));
      for (std::size_t i = 0; i < kElements; ++i) {
        float& value = values[i];
        if (shape == 1) value = value * value * value;                  // heavy tails
        if (shape == 2) value *= i < kElements / 16 ? 10.0f : 1.0f;     // in one place
        if (shape == 3) value = value * static_cast<float>(i) * 1e-5f;  // a slope
      }
      const Selected selected = select_guarded({.kind = Kind::topk, .share = share}, values);
      const double wanted = std::round(static_cast<double>(share) * kElements);
      EXPECT_GE(static_cast<double>(selected.kept.size()), 0.69 * wanted) << share << ' ' << shape;
      EXPECT_LE(static_cast<double>(selected.kept.size()), 1.31 * wanted) << share << ' ' << shape;
      // A threshold: nothing that stayed is larger than what went.
      float smallest = INFINITY;
      for (const float kept : selected.kept) smallest = std::min(smallest, std::fabs(kept));
      const auto sent = scattered(selected, kElements);
      for (std::size_t i = 0; i < kElements; ++i) {
        if (sent[i] == 0.0f) {
          ASSERT_LE(std::fabs(values[i]), smallest);
        }
      }
    }
  }
}

TEST(TopK, KeepsTheFewThatAreNotZero) {
  std::vector<float> values(65536);
  for (const std::size_t i : {7u, 60001u, 65535u}) values[i] = 1e-30f;
  const Selected selected = select_guarded({.kind = Kind::topk, .share = 0.01f}, values);
  EXPECT_EQ(selected.positions, (std::vector<std::uint32_t>{7, 60001, 65535}));
}

TEST(TopK, FindsWhatTheSampleMissed) {
  // 6,000 values in one place of a chunk of zeros, and k is 655.
  std::vector<float> values(65536);
  const auto some = gaussian(6000, 3);
  std::copy(some.begin(), some.end(), values.begin() + 100);
  const Selected selected = select_guarded({.kind = Kind::topk, .share = 0.01f}, values);
  EXPECT_GE(selected.kept.size(), 458u);
  EXPECT_LE(selected.kept.size(), 852u);
  EXPECT_GT(energy(selected.kept), 0.3 * energy(values));
}

TEST(TopK, CapsEqualMagnitudesAtTheBound) {
  const std::vector<float> values(65536, -3.0f);
  const Selected selected = select_guarded({.kind = Kind::topk, .count = 100}, values);
  EXPECT_LE(selected.kept.size(), 264u);
  for (std::size_t i = 0; i < selected.positions.size(); ++i) {
    ASSERT_EQ(selected.positions[i], i);
  }
}

TEST(TopK, EqualMagnitudesDoNotPushOutLargerOnesBehindThem) {
  std::vector<float> values(65536, 1.0f);
  std::fill(values.end() - 400, values.end(), -100.0f);
  const Selected selected = select_guarded({.kind = Kind::topk, .share = 0.01f}, values);
  EXPECT_EQ(selected.kept.size(), 655u);
  EXPECT_EQ(std::count(selected.kept.begin(), selected.kept.end(), -100.0f), 400);
  EXPECT_EQ(selected.positions[254], 254u);
}

TEST(TopK, IsBiased) { EXPECT_LT(omega({.kind = Kind::topk, .share = 0.1f}, 100), 0.0); }

}  // namespace topk_test
}  // namespace tern::codec::sparsifier
