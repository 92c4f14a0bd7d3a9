#include "examples/training/random.h"

#include <gtest/gtest.h>

#include <set>

namespace tern::training {
namespace {

TEST(Random, GivesThePublishedNumbersOfSplitmix64) {
  Random random(1234567);
  EXPECT_EQ(random.next(), 6457827717110365317U);
  EXPECT_EQ(random.next(), 3203168211198807973U);
  EXPECT_EQ(random.next(), 9817491932198370423U);
}

TEST(Random, APermutationHasEveryIndexOnceAndDependsOnTheSeed) {
  const auto order = Random(7).permutation(1000);
  EXPECT_EQ(std::set<std::uint32_t>(order.begin(), order.end()).size(), 1000U);
  EXPECT_EQ(order, Random(7).permutation(1000));
  EXPECT_NE(order, Random(8).permutation(1000));
}

TEST(Random, NormalHasMeanZeroAndVarianceOne) {
  Random random(3);
  double sum = 0.0;
  double squares = 0.0;
  constexpr int kDraws = 100000;
  for (int i = 0; i < kDraws; ++i) {
    const double value = static_cast<double>(random.normal());
    sum += value;
    squares += value * value;
  }
  EXPECT_NEAR(sum / kDraws, 0.0, 0.02);
  EXPECT_NEAR(squares / kDraws, 1.0, 0.02);
}

}  // namespace
}  // namespace tern::training
