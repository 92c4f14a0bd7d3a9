#include "tuner/error_guard.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace tern::tuner {
namespace {

constexpr GuardSettings kNoFirstOps{0, 8, 4.0};

// After each op a decision is made.
class HeededGuard : public ErrorGuard {
 public:
  using ErrorGuard::ErrorGuard;
  void observe(const ErrorSample& sample) noexcept {
    ErrorGuard::observe(sample);
    heed();
  }
};

HeededGuard guard_of(Level level, const GuardSettings& settings = kNoFirstOps) {
  return {level, bounds_of(level), settings};
}

ErrorSample sample(double input, double residual_ratio = 0.0) {
  return {{input * input, input * input * residual_ratio * residual_ratio, 1000}, {}, false};
}

constexpr ErrorSample kNotFinite{{1.0, 0.0, 1000}, {}, true};

TEST(Levels, GrowAndHaveNames) {
  Bounds last{-1.0, -1.0};
  for (const Level level :
       {Level::lossless, Level::conservative, Level::balanced, Level::aggressive}) {
    EXPECT_GT(bounds_of(level).loss, last.loss);
    EXPECT_GT(bounds_of(level).residual, last.residual);
    EXPECT_EQ(parse_level(level_name(level)), level);
    last = bounds_of(level);
  }
  EXPECT_EQ(bounds_of(Level::lossless).loss, 0.0);
  EXPECT_FALSE(parse_level("reckless").has_value());
  EXPECT_EQ(safer(Level::balanced), Level::conservative);
  EXPECT_EQ(safer(Level::lossless), Level::lossless);
}

TEST(ErrorGuard, FirstOpsAreConservative) {
  HeededGuard guard = guard_of(Level::aggressive, {3, 8, 4.0});
  for (int op = 0; op < 3; ++op) {
    EXPECT_EQ(guard.alarm(), Alarm::first_ops);
    EXPECT_EQ(guard.bounds(), bounds_of(Level::conservative));
    guard.observe(sample(1.0));
  }
  EXPECT_EQ(guard.alarm(), Alarm::none);
  EXPECT_EQ(guard.bounds(), bounds_of(Level::aggressive));
  EXPECT_EQ(guard.alarms(), 0u);
}

// So many of the first ops with the new length.
int ops_until_alarm(HeededGuard& guard, double length) {
  for (int op = 1; op <= 20; ++op) {
    guard.observe(sample(length));
    if (guard.alarm() != Alarm::none) return op;
  }
  return 0;
}

TEST(ErrorGuard, ANormThatJumpsIsCautiousForAWhile) {
  for (const double jump : {5.0, 0.2}) {
    HeededGuard guard = guard_of(Level::balanced);
    for (int op = 0; op < 40; ++op) guard.observe(sample(1.0));
    EXPECT_EQ(guard.alarm(), Alarm::none);
    EXPECT_EQ(ops_until_alarm(guard, jump), jump > 1.0 ? 1 : 4);
    EXPECT_EQ(guard.alarm(), Alarm::norm_change);
    EXPECT_EQ(guard.level(), Level::conservative);
    // The new length is the usual one: no second alarm, and after eight ops all is as before.
    for (int op = 0; op < 8; ++op) {
      EXPECT_EQ(guard.level(), Level::conservative);
      guard.observe(sample(jump));
    }
    EXPECT_EQ(guard.level(), Level::balanced);
    EXPECT_EQ(guard.alarms(), 1u);
  }
}

// Ops come and go between two decisions.
TEST(ErrorGuard, AnAlarmWaitsForTheDecisionThatHeedsIt) {
  ErrorGuard guard(Level::balanced, bounds_of(Level::balanced), kNoFirstOps);
  guard.observe(kNotFinite);
  for (int op = 0; op < 100; ++op) guard.observe(sample(1.0));
  EXPECT_EQ(guard.alarm(), Alarm::nonfinite);
  guard.heed();
  for (int op = 0; op < 8; ++op) {
    EXPECT_EQ(guard.level(), Level::conservative);
    guard.observe(sample(1.0));
  }
  EXPECT_EQ(guard.level(), Level::balanced);
}

TEST(ErrorGuard, SignsBeforeADecisionAreOneAlarm) {
  ErrorGuard guard(Level::aggressive, bounds_of(Level::aggressive), kNoFirstOps);
  for (int op = 0; op < 20; ++op) guard.observe(sample(1.0, 50.0));
  EXPECT_EQ(guard.alarms(), 1u);
  EXPECT_EQ(guard.level(), Level::balanced);
  guard.heed();
  guard.observe(sample(1.0, 50.0));
  EXPECT_EQ(guard.alarms(), 2u);
  EXPECT_EQ(guard.level(), Level::conservative);
}

TEST(ErrorGuard, AShortOneNowAndThenIsNoChange) {
  HeededGuard guard = guard_of(Level::balanced);
  for (int op = 0; op < 200; ++op) guard.observe(sample(op % 20 >= 18 ? 0.05 : 1.0));
  EXPECT_EQ(guard.alarms(), 0u);
  EXPECT_NEAR(guard.residual_ratio(), 0.0, 1e-9);
  guard.observe(sample(1e3));
  EXPECT_EQ(guard.alarm(), Alarm::norm_change);
}

TEST(ErrorGuard, SumsAreLongerThanContributions) {
  HeededGuard guard = guard_of(Level::balanced);
  for (int op = 0; op < 30; ++op) {
    // Of ten ranks, and the choice encodes now one leg, now the other, now both.
    ErrorSample sample;
    if (op % 3 != 0) sample.contributions = {1.0, 0.0, 9000};
    if (op % 3 != 1) sample.results = {100.0, 0.0, 1000};
    guard.observe(sample);
  }
  EXPECT_EQ(guard.alarms(), 0u);
  guard.observe({{1.0, 0.0, 9000}, {1e5, 0.0, 1000}, false});
  EXPECT_EQ(guard.alarm(), Alarm::norm_change);
}

TEST(ErrorGuard, AnotherPartOfTheTensorIsNoChange) {
  HeededGuard guard = guard_of(Level::balanced);
  for (int op = 0; op < 10; ++op) guard.observe({{1.0, 0.0, 1000}, {}, false});
  for (int op = 0; op < 10; ++op) guard.observe({{30.0, 0.0, 9000}, {}, false});
  EXPECT_EQ(guard.alarms(), 0u);
}

TEST(ErrorGuard, SmallBatchesHaveLengthsThatVary) {
  constexpr std::uint64_t kSeed = 7;
  std::mt19937_64 engine(kSeed);
  HeededGuard guard = guard_of(Level::balanced);
  for (int op = 0; op < 2000; ++op) {
    // By a factor of up to seven either way.
    guard.observe(sample(std::exp(static_cast<double>(engine() % 4000) / 1000.0 - 2.0)));
  }
  EXPECT_EQ(guard.alarms(), 0u) << "seed " << kSeed;
  guard.observe(sample(1e6));
  EXPECT_EQ(guard.alarm(), Alarm::norm_change);
}

TEST(ErrorGuard, AValueThatIsNotFiniteIsAnAlarm) {
  HeededGuard guard = guard_of(Level::balanced);
  guard.observe(sample(1.0));
  guard.observe(kNotFinite);
  EXPECT_EQ(guard.alarm(), Alarm::nonfinite);
  EXPECT_EQ(guard.bounds(), bounds_of(Level::conservative));
}

// As of one step with finite gradients that are very long.
TEST(ErrorGuard, AnEnergyThatHasOverflowedIsAnAlarmAndNotUsual) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  for (const ErrorSample& overflowed :
       {ErrorSample{{kInfinite, 0.0, 1000}, {}, false},
        ErrorSample{{1.0, kInfinite, 1000}, {}, false},
        ErrorSample{{1.0, 0.0, 1000}, {kInfinite, 0.0, 9}, false}}) {
    HeededGuard guard = guard_of(Level::balanced);
    for (int op = 0; op < 20; ++op) guard.observe(sample(1.0));
    guard.observe(overflowed);
    EXPECT_EQ(guard.alarm(), Alarm::nonfinite);
    for (int op = 0; op < 20; ++op) guard.observe(sample(1.0));
    EXPECT_EQ(guard.alarm(), Alarm::none);
    guard.observe(sample(1.0, 100.0));
    EXPECT_EQ(guard.alarm(), Alarm::residual_growth);
    EXPECT_NEAR(guard.residual_ratio(), 100.0, 1.0);
  }
}

TEST(ErrorGuard, ASecondAlarmGoesAnotherRungDown) {
  HeededGuard guard = guard_of(Level::aggressive);
  guard.observe(kNotFinite);
  EXPECT_EQ(guard.level(), Level::balanced);
  guard.observe(kNotFinite);
  EXPECT_EQ(guard.level(), Level::conservative);
  guard.observe(kNotFinite);
  guard.observe(kNotFinite);
  EXPECT_EQ(guard.level(), Level::lossless);
  EXPECT_EQ(guard.bounds().loss, 0.0);
}

TEST(ErrorGuard, AShortGradientDoesNotMakeAResidualLong) {
  HeededGuard guard = guard_of(Level::balanced);
  for (int op = 0; op < 100; ++op) {
    // What is owed is twice the usual gradient, and some gradients are three times shorter.
    const double length = op % 5 == 4 ? 0.33 : 1.0;
    guard.observe({{length * length, 4.0, 1000}, {}, false});
  }
  EXPECT_EQ(guard.alarms(), 0u);
  EXPECT_NEAR(guard.residual_ratio(), 2.0, 0.3);
}

TEST(ErrorGuard, AResidualThatOutgrowsIsTriedEverMoreRarely) {
  HeededGuard guard = guard_of(Level::balanced);
  std::uint64_t last = 0;
  for (int round = 0; round < 4; ++round) {
    guard.observe(sample(1.0, 4.1));
    EXPECT_EQ(guard.alarm(), Alarm::residual_growth);
    std::uint64_t ops = 0;
    for (; guard.alarm() != Alarm::none; ++ops) guard.observe(sample(1.0, 0.01));
    EXPECT_GE(ops, 2 * last);
    last = ops;
  }
  EXPECT_EQ(last, 64u);
  EXPECT_NEAR(guard.residual_ratio(), 0.01, 1e-9);
}

TEST(ErrorGuard, AResidualWithinTheBoundIsNone) {
  HeededGuard guard = guard_of(Level::balanced);
  for (int op = 0; op < 100; ++op) guard.observe(sample(1.0, 3.9));
  EXPECT_EQ(guard.alarms(), 0u);
}

TEST(ErrorGuard, ExplicitBoundsHoldUnderAlarmsToo) {
  HeededGuard guard(Level::balanced, {0.0005, 0.01}, kNoFirstOps);
  guard.observe(kNotFinite);
  EXPECT_EQ(guard.bounds().loss, 0.0005);
  EXPECT_EQ(guard.bounds().residual, 0.01);
}

TEST(ErrorGuard, OpsThatEncodeNothingSayNothing) {
  HeededGuard guard = guard_of(Level::balanced);
  for (int op = 0; op < 10; ++op) guard.observe(sample(1.0));
  for (int op = 0; op < 10; ++op) guard.observe({});
  guard.observe(sample(1.0));
  EXPECT_EQ(guard.alarms(), 0u);
}

TEST(ErrorGuard, EveryAlarmHasWords) {
  for (const Alarm alarm :
       {Alarm::first_ops, Alarm::residual_growth, Alarm::nonfinite, Alarm::norm_change}) {
    EXPECT_FALSE(alarm_text(alarm).empty());
  }
  EXPECT_TRUE(alarm_text(Alarm::none).empty());
}

}  // namespace
}  // namespace tern::tuner
