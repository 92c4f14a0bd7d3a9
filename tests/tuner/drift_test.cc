#include "tuner/drift.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tern::tuner {
namespace {

TEST(Drift, IsOneAtFirstAndFollowsSlowly) {
  Drift drift;
  EXPECT_EQ(drift.value(), 1.0);
  drift.observe(1.2);
  EXPECT_GT(drift.value(), 1.0);
  EXPECT_LT(drift.value(), 1.05);
  for (int i = 0; i < 100; ++i) drift.observe(1.2);
  EXPECT_NEAR(drift.value(), 1.2, 1e-3);
}

TEST(Drift, JumpsAfterTwoInARow) {
  for (const double level : {3.0, 0.3}) {
    Drift drift;
    drift.observe(level);
    EXPECT_NEAR(drift.value(), 1.0, 0.06);
    drift.observe(level);
    EXPECT_NEAR(drift.value(), level, 1e-9);
  }
}

TEST(Drift, OneAloneIsADisturbance) {
  Drift drift;
  for (int i = 0; i < 20; ++i) {
    drift.observe(8.0);
    drift.observe(1.0);
    drift.observe(1.0);
    drift.observe(1.0);
  }
  EXPECT_LT(drift.value(), 1.2);
}

TEST(Bias, IsFoundOutSoonAtFirst) {
  Bias bias;
  for (int i = 0; i < 6; ++i) bias.observe(1.3);
  EXPECT_NEAR(bias.value(), 1.3, 0.08);
}

TEST(Bias, IsFollowedSlowly) {
  Bias bias;
  for (int i = 0; i < 100; ++i) bias.observe(1.0);
  bias.observe(1.3);
  EXPECT_NEAR(bias.value(), 1.03, 0.01);
}

TEST(Bias, WhatIsFarOffIsOfSomethingElse) {
  Bias bias;
  for (int i = 0; i < 100; ++i) bias.observe(1.0);
  for (int i = 0; i < 3; ++i) bias.observe(10.0);
  EXPECT_LT(bias.value(), 1.15);
}

}  // namespace
}  // namespace tern::tuner
