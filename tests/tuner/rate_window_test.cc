#include "tuner/rate_window.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tern::tuner {
namespace {

RateWindow filled(double rate, int count = 8) {
  RateWindow window;
  for (int i = 0; i < count; ++i) window.observe(rate, false);
  return window;
}

TEST(RateWindow, KnowsNothingAtFirst) {
  const RateWindow window;
  EXPECT_FALSE(window.known());
  EXPECT_EQ(window.mean(), 0.0);
  EXPECT_EQ(window.median(), 0.0);
}

TEST(RateWindow, WeightsSumToOneAndFavourTheNewest) {
  for (int count = 1; count <= 8; ++count) {
    const RateWindow window = filled(1e9, count);
    double sum = 0.0;
    for (std::size_t age = 0; age < window.count(); ++age) {
      sum += window.weight(age);
      if (age > 0) {
        EXPECT_LT(window.weight(age), window.weight(age - 1));
      }
    }
    EXPECT_NEAR(sum, 1.0, 1e-12);
    EXPECT_NEAR(window.mean(), 1e9, 1.0);
  }
}

TEST(RateWindow, LimitedSamplesOnlyRaise) {
  RateWindow window = filled(1e9);
  for (int i = 0; i < 20; ++i) {
    window.observe(1e6, true);
    EXPECT_NEAR(window.mean(), 1e9, 1.0);
  }
  EXPECT_EQ(window.limited_since(), 20u);
  window.observe(1.2e9, true);
  EXPECT_GT(window.mean(), 1e9);
}

TEST(RateWindow, LimitedSamplesAreAllItHasUntilTheLinkIsFull) {
  RateWindow window;
  window.observe(2e8, true);
  EXPECT_TRUE(window.known());
  EXPECT_EQ(window.mean(), 2e8);
  window.observe(3e8, true);
  EXPECT_EQ(window.count(), 1u);
  EXPECT_EQ(window.mean(), 3e8);
}

// A token bucket lets bursts through at the speed of the machine, however slow the link is.
TEST(RateWindow, BurstsAloneAreNoChange) {
  RateWindow window = filled(1e8);
  for (int i = 0; i < 50; ++i) window.observe(5e9, true);
  EXPECT_EQ(window.changes(), 0u);
  EXPECT_TRUE(window.may_be_faster());
  EXPECT_EQ(window.sample(1), 1e8);
  window.observe(1e8, false);
  EXPECT_NEAR(window.mean(), 1e8, 1.0);
}

TEST(RateWindow, ForgetsAfterTwoFullSamplesFarOff) {
  for (const double rate : {1e7, 2e9}) {
    RateWindow window = filled(2e8);
    window.observe(rate, false);
    EXPECT_EQ(window.changes(), 0u);
    window.observe(rate, false);
    EXPECT_EQ(window.changes(), 1u);
    EXPECT_NEAR(window.mean(), rate, 1.0);
  }
}

TEST(RateWindow, ABoundAndAFullSampleAreEnough) {
  RateWindow window = filled(1e8);
  window.observe(1.5e8, true);
  EXPECT_TRUE(window.may_be_faster());
  window.observe(3e9, false);
  EXPECT_EQ(window.changes(), 1u);
  EXPECT_NEAR(window.mean(), 3e9, 1.0);
}

// A sender whose lane is the bottleneck sends large blocks and never fills its link.
TEST(RateWindow, LargeBlocksThatPassAreAChange) {
  RateWindow window = filled(1e9);
  window.observe(2e9, Evidence::passed);
  EXPECT_EQ(window.changes(), 0u);
  window.observe(2.5e9, Evidence::passed);
  EXPECT_EQ(window.changes(), 1u);
  EXPECT_NEAR(window.mean(), 2.3e9, 1e8);
  window.observe(9e9, Evidence::passed);  // beyond doubt
  EXPECT_EQ(window.changes(), 2u);
  EXPECT_NEAR(window.mean(), 9e9, 1.0);
}

TEST(RateWindow, LargeBlocksThatPassNeverLower) {
  RateWindow window = filled(1e9);
  for (int i = 0; i < 20; ++i) window.observe(3e8, Evidence::passed);
  EXPECT_NEAR(window.mean(), 1e9, 1.0);
  for (int i = 0; i < 20; ++i) window.observe(0.95e9, Evidence::passed);
  EXPECT_NEAR(window.mean(), 1e9, 1.0);
}

// Otherwise only the slow moments, which fill the link, would be known.
TEST(RateWindow, ASlowMomentAmongLargeBlocksIsAMoment) {
  RateWindow window = filled(1e8, 1);
  for (int i = 0; i < 6; ++i) window.observe(2e9, Evidence::passed);
  window.observe(1e8, Evidence::full);
  for (int i = 0; i < 4; ++i) window.observe(2e9, Evidence::passed);
  EXPECT_GT(window.mean(), 1.5e9);
}

TEST(RateWindow, NoiseAndASpikeAreNoChange) {
  RateWindow window;
  for (int i = 0; i < 100; ++i) window.observe(1e9 * (1.0 + 0.2 * std::sin(i * 1.7)), false);
  window.observe(3e7, false);
  for (int i = 0; i < 5; ++i) window.observe(1e9, false);
  EXPECT_EQ(window.changes(), 0u);
}

TEST(RateWindow, IsClearlyFasterWhenNoRateLeavesADoubt) {
  const RateWindow slow = filled(1e9);
  EXPECT_TRUE(filled(1.3e9).clearly_faster_than(slow));
  EXPECT_FALSE(filled(1.2e9).clearly_faster_than(slow));
  EXPECT_FALSE(filled(1.3e9, 7).clearly_faster_than(slow));
  EXPECT_FALSE(filled(1.3e9).clearly_faster_than(filled(1e9, 7)));
  // One rate is enough, on either side.
  RateWindow once_fast = filled(1e9);
  once_fast.observe(1.2e9, false);
  EXPECT_FALSE(filled(1.4e9).clearly_faster_than(once_fast));
  RateWindow once_slow = filled(1.5e9);
  once_slow.observe(1.1e9, false);
  EXPECT_FALSE(once_slow.clearly_faster_than(slow));
  for (int i = 0; i < 7; ++i) once_slow.observe(1.5e9, false);
  EXPECT_FALSE(once_slow.clearly_faster_than(slow));
  once_slow.observe(1.5e9, false);
  EXPECT_TRUE(once_slow.clearly_faster_than(slow));
}

TEST(RateWindow, LimitedRatesShowThatALinkIsClearlyFaster) {
  const RateWindow slow = filled(1e9);
  RateWindow idle;
  for (int i = 0; i < 7; ++i) idle.observe(3e9, true);
  EXPECT_FALSE(idle.clearly_faster_than(slow));
  idle.observe(2e9, true);
  EXPECT_TRUE(idle.clearly_faster_than(slow));
  idle.observe(1.1e9, true);
  EXPECT_FALSE(idle.clearly_faster_than(slow));
  // What is known of the slow one from when it was full stays true while it is idle.
  RateWindow idle_too = filled(4e9);
  for (int i = 0; i < 8; ++i) idle_too.observe(1e8, true);
  EXPECT_FALSE(filled(3e9).clearly_faster_than(idle_too));
}

TEST(RateWindow, RefusesWhatIsNoRate) {
  RateWindow window = filled(1e9);
  for (const double bad : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN(),
                           std::numeric_limits<double>::infinity()}) {
    window.observe(bad, false);
    EXPECT_NEAR(window.mean(), 1e9, 1.0);
  }
}

}  // namespace
}  // namespace tern::tuner
