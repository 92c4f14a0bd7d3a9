#include "tuner/error_guard.h"

#include <gtest/gtest.h>

namespace tern::tuner {
namespace {

constexpr GuardSettings kNoFirstOps{0, 8, 4.0};

ErrorGuard guard_of(Level level, const GuardSettings& settings = kNoFirstOps) {
  return {level, bounds_of(level), settings};
}

ErrorSample sample(double input, double residual_ratio = 0.0) {
  return {input * input, input * input * residual_ratio * residual_ratio, false};
}

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
  ErrorGuard guard = guard_of(Level::aggressive, {3, 8, 4.0});
  for (int op = 0; op < 3; ++op) {
    EXPECT_EQ(guard.alarm(), Alarm::first_ops);
    EXPECT_EQ(guard.bounds(), bounds_of(Level::conservative));
    guard.observe(sample(1.0));
  }
  EXPECT_EQ(guard.alarm(), Alarm::none);
  EXPECT_EQ(guard.bounds(), bounds_of(Level::aggressive));
  EXPECT_EQ(guard.alarms(), 0u);
}

TEST(ErrorGuard, ANormThatJumpsIsCautiousForAWhile) {
  for (const double jump : {5.0, 0.2}) {
    ErrorGuard guard = guard_of(Level::balanced);
    for (int op = 0; op < 10; ++op) guard.observe(sample(1.0));
    EXPECT_EQ(guard.alarm(), Alarm::none);
    guard.observe(sample(jump));
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

TEST(ErrorGuard, AValueThatIsNotFiniteIsAnAlarm) {
  ErrorGuard guard = guard_of(Level::balanced);
  guard.observe(sample(1.0));
  guard.observe({1.0, 0.0, true});
  EXPECT_EQ(guard.alarm(), Alarm::nonfinite);
  EXPECT_EQ(guard.bounds(), bounds_of(Level::conservative));
}

TEST(ErrorGuard, ASecondAlarmGoesAnotherRungDown) {
  ErrorGuard guard = guard_of(Level::aggressive);
  guard.observe({1.0, 0.0, true});
  EXPECT_EQ(guard.level(), Level::balanced);
  guard.observe({1.0, 0.0, true});
  EXPECT_EQ(guard.level(), Level::conservative);
  guard.observe({1.0, 0.0, true});
  guard.observe({1.0, 0.0, true});
  EXPECT_EQ(guard.level(), Level::lossless);
  EXPECT_EQ(guard.bounds().loss, 0.0);
}

TEST(ErrorGuard, AResidualThatOutgrowsIsTriedEverMoreRarely) {
  ErrorGuard guard = guard_of(Level::balanced);
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
  ErrorGuard guard = guard_of(Level::balanced);
  for (int op = 0; op < 100; ++op) guard.observe(sample(1.0, 3.9));
  EXPECT_EQ(guard.alarms(), 0u);
}

TEST(ErrorGuard, ExplicitBoundsHoldUnderAlarmsToo) {
  ErrorGuard guard(Level::balanced, {0.0005, 0.01}, kNoFirstOps);
  guard.observe({1.0, 0.0, true});
  EXPECT_EQ(guard.bounds().loss, 0.0005);
  EXPECT_EQ(guard.bounds().residual, 0.01);
}

TEST(ErrorGuard, OpsThatEncodeNothingSayNothing) {
  ErrorGuard guard = guard_of(Level::balanced);
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
