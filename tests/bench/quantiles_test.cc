#include "bench/quantiles.h"

#include <gtest/gtest.h>

namespace tern::bench {
namespace quantiles_test {

TEST(Median, IsBetweenTheTwoInTheMiddle) {
  EXPECT_EQ(median({1, 2, 9}), 2);
  EXPECT_EQ(median({1, 3}), 2);
  EXPECT_EQ(median({1, 2, 4, 9}), 3);
}

TEST(Quantile, OfFewValuesIsTheLargest) {
  EXPECT_EQ(quantile({1, 2, 3}, 0.99), 3);
  EXPECT_EQ(quantile({1, 2, 3, 4}, 0.5), 2);
  EXPECT_EQ(quantile({1, 2, 3}, 0), 1);
}

}  // namespace quantiles_test
}  // namespace tern::bench
