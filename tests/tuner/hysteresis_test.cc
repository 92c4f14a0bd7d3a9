#include "tuner/hysteresis.h"

#include <gtest/gtest.h>

namespace tern::tuner {
namespace {

constexpr SwitchSettings kSettings;

// Past its first ops, after which nothing is free.
Hysteresis settled() {
  Hysteresis hysteresis(kSettings);
  for (std::uint32_t op = 0; op < 2 * kSettings.first_ops; ++op) hysteresis.accepts(0.0, false);
  return hysteresis;
}

TEST(Hysteresis, AtFirstAGainCountsAtOnce) {
  Hysteresis hysteresis(kSettings);
  EXPECT_FALSE(hysteresis.accepts(0.02, false));
  EXPECT_TRUE(hysteresis.accepts(0.04, false));
}

TEST(Hysteresis, LaterAGainMustLast) {
  Hysteresis hysteresis = settled();
  int op = 1;
  while (!hysteresis.accepts(0.08, false)) ++op;
  EXPECT_GT(op, 2);
  EXPECT_LT(op, 10);
}

TEST(Hysteresis, AGainThatComesAndGoesIsNoise) {
  Hysteresis hysteresis = settled();
  for (int op = 0; op < 500; ++op)
    EXPECT_FALSE(hysteresis.accepts(op % 3 == 0 ? 0.06 : 0.0, false));
}

TEST(Hysteresis, AfterAChangeAGainCountsAtOnce) {
  Hysteresis hysteresis = settled();
  hysteresis.change();
  EXPECT_TRUE(hysteresis.accepts(0.04, false));
}

TEST(Hysteresis, OneSwitchIsEnoughForSoManyOps) {
  Hysteresis hysteresis = settled();
  while (!hysteresis.accepts(0.1, false)) {
  }
  for (std::uint32_t op = 0; op < kSettings.dwell; ++op) {
    EXPECT_FALSE(hysteresis.accepts(0.1, false)) << op;
  }
  EXPECT_TRUE(hysteresis.accepts(0.1, false));
}

TEST(Hysteresis, AGreatGainShowsThatTheSwitchWasWrong) {
  Hysteresis hysteresis = settled();
  while (!hysteresis.accepts(0.1, false)) {
  }
  EXPECT_FALSE(hysteresis.accepts(0.3, false));
  EXPECT_FALSE(hysteresis.accepts(0.3, false));
  EXPECT_TRUE(hysteresis.accepts(0.3, false));
}

TEST(Hysteresis, RawNeedsLessOfAGain) {
  Hysteresis hysteresis = settled();
  int op = 0;
  while (op < 100 && !hysteresis.accepts(0.025, true)) ++op;
  EXPECT_LT(op, 20);
  for (int i = 0; i < 200; ++i) EXPECT_FALSE(hysteresis.accepts(0.025, false));
}

}  // namespace
}  // namespace tern::tuner
