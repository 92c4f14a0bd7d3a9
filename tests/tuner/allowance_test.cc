#include "tuner/allowance.h"

#include <gtest/gtest.h>

namespace tern::tuner {
namespace {

TEST(Allowance, CoversNothingAtFirst) {
  const Allowance allowance;
  EXPECT_TRUE(allowance.covers(0.0));
  EXPECT_FALSE(allowance.covers(1.0));
}

TEST(Allowance, EarnsAShareOfEachOp) {
  Allowance allowance;
  for (int op = 0; op < 10; ++op) allowance.earn(1000.0, 0.01);
  EXPECT_TRUE(allowance.covers(99.0));
  EXPECT_FALSE(allowance.covers(101.0));
  allowance.spend(60.0);
  EXPECT_TRUE(allowance.covers(39.0));
  EXPECT_FALSE(allowance.covers(41.0));
}

TEST(Allowance, SavesNoMoreThanAnOp) {
  Allowance allowance;
  for (int op = 0; op < 100'000; ++op) allowance.earn(1000.0, 0.01);
  EXPECT_FALSE(allowance.covers(1001.0));
  EXPECT_TRUE(allowance.covers(999.0));
}

TEST(Allowance, SavesAsManyOpsAsItMay) {
  Allowance allowance(3.0);
  for (int op = 0; op < 100'000; ++op) allowance.earn(1000.0, 0.01);
  EXPECT_FALSE(allowance.covers(3001.0));
  EXPECT_TRUE(allowance.covers(2999.0));
}

TEST(Allowance, WhatWasSpentTooMuchIsEarnedFirst) {
  Allowance allowance;
  allowance.spend(50.0);  // at a sign, without asking
  EXPECT_FALSE(allowance.covers(0.0));
  for (int op = 0; op < 6; ++op) allowance.earn(1000.0, 0.01);
  EXPECT_TRUE(allowance.covers(5.0));
}

TEST(Allowance, AGainCostsNothing) {
  Allowance allowance;
  allowance.earn(1000.0, 0.01);
  allowance.spend(-500.0);
  EXPECT_FALSE(allowance.covers(11.0));
}

}  // namespace
}  // namespace tern::tuner
