#include "tuner/codec_speeds.h"

#include <gtest/gtest.h>

namespace tern::tuner {
namespace {

constexpr CandidateIndex kFirst = 1;
constexpr CandidateIndex kSecond = 2;
constexpr std::size_t kClass = 2;

CodecSpeeds measured() {
  CodecSpeeds speeds(3);
  for (const CandidateIndex one : {kFirst, kSecond}) {
    speeds.observe_shadow({one, 1000, 100, 200.0 * one, 100.0 * one, 0.0});
  }
  return speeds;
}

TEST(CodecSpeeds, WhatIsNotMeasuredIsTakenForSlow) {
  const CodecSpeeds speeds(3);
  EXPECT_GT(speeds.on_lane(kFirst, kClass, 1.0).encode_ns, 1.0);
  EXPECT_EQ(speeds.on_lane(kRaw, kClass, 1.0).encode_ns, 0.0);
}

TEST(CodecSpeeds, TheShadowOfAnotherSizeIsBetterThanNone) {
  EXPECT_NEAR(measured().on_lane(kFirst, kClass, 1.0).encode_ns, 0.2, 1e-9);
}

TEST(CodecSpeeds, ALaneShowsWhatIsPeculiarToACandidate) {
  CodecSpeeds speeds = measured();
  for (int i = 0; i < 5; ++i) speeds.observe_lane({kFirst, kClass, 0.3}, 1.0);
  EXPECT_NEAR(speeds.on_lane(kFirst, kClass, 1.0).encode_ns, 0.3, 1e-9);
  EXPECT_NEAR(speeds.on_lane(kFirst, kClass, 1.0).decode_ns, 0.15, 1e-9);
}

TEST(CodecSpeeds, WhatNoLaneHasUsedIsTakenForLikeTheOthers) {
  CodecSpeeds speeds = measured();
  speeds.observe_lane({kFirst, kClass, 0.3}, 1.0);
  EXPECT_NEAR(speeds.on_lane(kSecond, kClass, 1.0).encode_ns, 0.6, 1e-9);
}

TEST(CodecSpeeds, OnlyWhatIsKnownOnALaneShowsALoad) {
  CodecSpeeds speeds = measured();
  const LaneCoding slow{kFirst, kClass, 0.6};
  EXPECT_EQ(speeds.load_of(slow), 0.0);
  for (int i = 0; i < 5; ++i) speeds.observe_lane({kFirst, kClass, 0.2}, 1.0);
  EXPECT_NEAR(speeds.load_of(slow), 3.0, 1e-9);
  // The load is not the candidate's own.
  speeds.observe_lane(slow, 3.0);
  EXPECT_NEAR(speeds.on_lane(kFirst, kClass, 1.0).encode_ns, 0.2, 1e-9);
  EXPECT_NEAR(speeds.on_lane(kSecond, kClass, 3.0).encode_ns, 1.2, 1e-9);
}

// A shadow whose clock has seen no time go by says nothing of lanes.
TEST(CodecSpeeds, NoTimeIsNoMeasure) {
  CodecSpeeds speeds(2);
  speeds.observe_shadow({kFirst, 1000, 100, 0.0, 0.0, 0.0});
  for (const double lane_ns : {0.0, 0.3}) {
    for (int i = 0; i < 5; ++i) speeds.observe_lane({kFirst, kClass, lane_ns}, 1.0);
    EXPECT_EQ(speeds.load_of({kFirst, kClass, lane_ns}), 0.0);
    EXPECT_EQ(speeds.on_lane(kFirst, kClass, 1.0).encode_ns, 0.0);
  }
}

}  // namespace
}  // namespace tern::tuner
