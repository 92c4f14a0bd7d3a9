#include "tests/codec/gaussian.h"

#include <gtest/gtest.h>

namespace tern::codec {
namespace {

// Digests of encoded blocks in data/ rest on the values.
TEST(GaussianOfTests, HasTheValuesOfTheStandardLibrarys) {
  for (const std::uint64_t seed : {1u, 2u, 3u}) {
    std::mt19937_64 random(seed), same(seed);
    std::normal_distribution<float> standard(0.0f, 0.01f);
    Gaussian ours(0.01f);
    for (int i = 0; i < 10'000; ++i) ASSERT_EQ(ours(random), standard(same)) << "seed " << seed;
  }
}

}  // namespace
}  // namespace tern::codec
