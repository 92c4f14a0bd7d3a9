#include "tuner/client_coding.h"

#include <gtest/gtest.h>

namespace tern::tuner {
namespace {

constexpr CandidateIndex kOne = 1;
constexpr CandidateIndex kOther = 2;
constexpr double kLaneNs = 10e6;

// A client whose raw blocks take 1 ms.
ClientCoding with_raw() {
  ClientCoding coding;
  coding.observe(kRaw, 1e6, 0.0);
  coding.observe(kRaw, 1e6, 0.0);
  return coding;
}

TEST(ClientCoding, TakesNothingForSlowerThanRawThatHasNotBeenSeen) {
  EXPECT_EQ(ClientCoding().ns(kOne, kLaneNs), 0.0);
  ClientCoding coding = with_raw();
  EXPECT_EQ(coding.ns(kRaw, 0.0), 1e6);
  EXPECT_EQ(coding.ns(kOne, kLaneNs), 1e6);
  coding.observe(kOne, 90e6, kLaneNs);
  EXPECT_EQ(coding.ns(kOne, kLaneNs), 1e6) << "one op may have lost its processor";
}

TEST(ClientCoding, GoesByTheShorterOfTheLastTwo) {
  ClientCoding coding = with_raw();
  for (const double ns : {9e6, 5e6}) coding.observe(kOne, ns, kLaneNs);
  EXPECT_EQ(coding.ns(kOne, kLaneNs), 5e6);
  coding.observe(kOne, 500e6, kLaneNs);
  EXPECT_EQ(coding.ns(kOne, kLaneNs), 5e6);
  coding.observe(kOne, 7e6, kLaneNs);
  EXPECT_EQ(coding.ns(kOne, kLaneNs), 7e6);
}

TEST(ClientCoding, TakesOthersForAsFastBesideALane) {
  ClientCoding coding = with_raw();
  for (int op = 0; op < 2; ++op) coding.observe(kOne, 5e6, kLaneNs);
  EXPECT_EQ(coding.ns(kOther, 2.0 * kLaneNs), 9e6);
  for (int op = 0; op < 2; ++op) coding.observe(kOther, 2e6, 2.0 * kLaneNs);
  EXPECT_LT(coding.ns(kOther, 2.0 * kLaneNs), 2.01e6);
  EXPECT_GT(coding.ns(kOne, kLaneNs), 4.9e6);
}

TEST(ClientCoding, ForgetsInTheEndWhatTookLonger) {
  ClientCoding coding = with_raw();
  for (int op = 0; op < 2; ++op) coding.observe(kOne, 17e6, kLaneNs);
  for (int op = 0; op < 4096; ++op) coding.observe(kRaw, 1e6, 0.0);
  EXPECT_NEAR(coding.ns(kOne, kLaneNs), 2e6, 1e3);
  EXPECT_NEAR(coding.ns(kOther, kLaneNs), 2e6, 1e3);
}

}  // namespace
}  // namespace tern::tuner
