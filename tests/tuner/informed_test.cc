#include <gtest/gtest.h>

#include <numeric>

#include "bench/tuner_informed.h"

namespace tern::bench {
namespace {

// Two candidates, whose pairs are raw, mixed, mixed and the other.
const std::vector<double> kRawIsBest = {1.0, 3.0, 3.0, 4.0};
const std::vector<double> kOtherIsBest = {9.0, 3.0, 3.0, 2.0};

double total(const InformedPolicies& policies) {
  const auto& taken = policies.best();
  return std::accumulate(taken.begin(), taken.end(), 0.0);
}

TEST(InformedPolicies, TheFirstOpIsRaw) {
  InformedPolicies policies({true, true});
  policies.see(kOtherIsBest);
  EXPECT_EQ(policies.best(), std::vector<double>{9.0});
}

TEST(InformedPolicies, WhereStatesLastItGoesByTheLastOp) {
  InformedPolicies policies({true, true});
  for (int i = 0; i < 10; ++i) policies.see(kRawIsBest);
  for (int i = 0; i < 10; ++i) policies.see(kOtherIsBest);
  EXPECT_EQ(total(policies), 10.0 * 1.0 + 9.0 + 9.0 * 2.0);
}

// By turns: who goes by the last op is always wrong. Two ops show what lies in the middle.
TEST(InformedPolicies, WhereTheyDoNotItGoesByAll) {
  InformedPolicies policies({true, true});
  for (int i = 0; i < 100; ++i) policies.see(i % 2 == 0 ? kRawIsBest : kOtherIsBest);
  EXPECT_EQ(total(policies), 1.0 + 9.0 + 98.0 * 3.0);
}

TEST(InformedPolicies, WhatIsNotAllowedIsNotTaken) {
  InformedPolicies policies({true, false});
  for (int i = 0; i < 10; ++i) policies.see(kOtherIsBest);
  EXPECT_EQ(total(policies), 90.0);
}

}  // namespace
}  // namespace tern::bench
