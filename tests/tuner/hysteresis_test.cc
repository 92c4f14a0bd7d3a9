#include "tuner/hysteresis.h"

#include <gtest/gtest.h>

namespace tern::tuner {
namespace {

constexpr SwitchSettings kSettings;

// Another recipe than raw; raw is far slower.
Gains gain(double best) { return {best, false, -1.0}; }
Gains gain_of_raw(double raw) { return {raw, true, raw}; }

// Past its first ops, after which nothing is free.
Hysteresis settled() {
  Hysteresis hysteresis(kSettings);
  for (std::uint32_t op = 0; op < 2 * kSettings.first_ops; ++op) hysteresis.next(gain(0.0));
  return hysteresis;
}

TEST(Hysteresis, AtFirstAGainCountsAtOnce) {
  Hysteresis hysteresis(kSettings);
  EXPECT_EQ(hysteresis.next(gain(0.02)), Move::stay);
  EXPECT_EQ(hysteresis.next(gain(0.04)), Move::to_best);
}

TEST(Hysteresis, LaterAGainMustLast) {
  Hysteresis hysteresis = settled();
  int op = 1;
  while (hysteresis.next(gain(0.08)) == Move::stay) ++op;
  EXPECT_GT(op, 2);
  EXPECT_LT(op, 10);
}

// Were only gains counted and not losses, noise alone would promise something.
TEST(Hysteresis, AGainThatComesAndGoesIsNoise) {
  Hysteresis hysteresis = settled();
  for (int op = 0; op < 500; ++op) {
    EXPECT_EQ(hysteresis.next(gain(op % 2 == 0 ? 0.14 : -0.14)), Move::stay);
  }
}

TEST(Hysteresis, AfterAChangeAGainCountsAtOnce) {
  Hysteresis hysteresis = settled();
  hysteresis.change();
  EXPECT_EQ(hysteresis.next(gain(0.04)), Move::to_best);
}

TEST(Hysteresis, OneSwitchIsEnoughForSoManyOps) {
  Hysteresis hysteresis = settled();
  while (hysteresis.next(gain(0.1)) == Move::stay) {
  }
  for (std::uint32_t op = 0; op < kSettings.dwell; ++op) {
    EXPECT_EQ(hysteresis.next(gain(0.1)), Move::stay) << op;
  }
  EXPECT_EQ(hysteresis.next(gain(0.1)), Move::to_best);
}

TEST(Hysteresis, AGreatGainShowsThatTheSwitchWasWrong) {
  Hysteresis hysteresis = settled();
  while (hysteresis.next(gain(0.1)) == Move::stay) {
  }
  for (std::uint32_t op = 1; op < kSettings.great_for; ++op) {
    EXPECT_EQ(hysteresis.next(gain(0.3)), Move::stay);
  }
  EXPECT_EQ(hysteresis.next(gain(0.3)), Move::to_best);
}

TEST(Hysteresis, RawNeedsLessOfAGain) {
  Hysteresis hysteresis = settled();
  int op = 0;
  while (op < 100 && hysteresis.next(gain_of_raw(0.025)) == Move::stay) ++op;
  EXPECT_LT(op, 30);
  for (int i = 0; i < 200; ++i) EXPECT_EQ(hysteresis.next(gain(0.025)), Move::stay);
}

// Whoever has left raw for something slower need not wait.
TEST(Hysteresis, BackToRawItGoesAtAnyTime) {
  Hysteresis hysteresis = settled();
  while (hysteresis.next(gain(0.1)) == Move::stay) {
  }
  int op = 1;
  while (hysteresis.next({0.12, false, 0.1}) == Move::stay) ++op;
  EXPECT_LE(op, 3);
  for (std::uint32_t i = 0; i < kSettings.dwell; ++i) {
    EXPECT_EQ(hysteresis.next({0.1, false, 0.0}), Move::stay);
  }
}

}  // namespace
}  // namespace tern::tuner
