#include "daemon/lane/shadow.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <memory>
#include <vector>

#include "base/random.h"
#include "block_values.h"

namespace tern::daemon::shadow_test {
namespace {

using group_test::ramp;
using group_test::recipe_of;

enum Candidate : tuner::CandidateIndex { kRaw = 0, kHalf = 1, kExact = 2 };
constexpr std::uint64_t kTensor = 42;
constexpr std::uint32_t kAll = Shadow::kSampleElements;

// Goes on by so much whenever somebody looks at it.
class StepClock final : public Clock {
 public:
  explicit StepClock(std::uint64_t step_ns) : step_ns_(step_ns) {}
  std::uint64_t now_ns() const noexcept override { return now_ns_ += step_ns_; }

 private:
  std::uint64_t step_ns_;
  mutable std::uint64_t now_ns_ = 0;
};

// Two lanes' samples; whoever measures is the test.
class ShadowTest : public ::testing::Test {
 protected:
  std::vector<ShadowResult> results() {
    std::vector<ShadowResult> all;
    for (ShadowResult result; shadow.pop(result);) all.push_back(result);
    return all;
  }
  // Candidates that came out.
  std::vector<tuner::CandidateIndex> measured(const Shadow::Sample& sample) {
    shadow.offer(0, sample);
    EXPECT_EQ(shadow.do_work(), 1);
    std::vector<tuner::CandidateIndex> candidates;
    for (const ShadowResult& result : results()) candidates.push_back(result.sample.candidate);
    return candidates;
  }
  static Shadow::Sample sample_of(const std::vector<float>& values, DType dtype = DType::f32) {
    return {kTensor, dtype, values, nullptr, 1.0f};
  }

  static constexpr std::uint64_t kStepNs = 1000;
  StepClock stopwatch{kStepNs};
  int wakes = 0;
  const std::shared_ptr<const CandidateRecipes> recipes = std::make_shared<CandidateRecipes>(
      CandidateRecipes{recipe_of("raw"), recipe_of("bf16"), recipe_of("lossless")});
  Shadow shadow{recipes, 2, [this] { ++wakes; }, &stopwatch};
};

using Candidates = std::vector<tuner::CandidateIndex>;

// ---- What a measurement says

TEST_F(ShadowTest, EveryCandidateButTheFirstIsMeasuredOnASample) {
  const auto values = ramp(1000, 1, 0.37f);
  shadow.offer(0, sample_of(values));
  EXPECT_EQ(shadow.do_work(), 1);
  const auto all = results();
  ASSERT_EQ(all.size(), 2u);
  for (const ShadowResult& result : all) {
    EXPECT_EQ(result.tensor, kTensor);
    EXPECT_EQ(result.sample.bytes, 4000u);
    EXPECT_EQ(result.sample.encode_ns, static_cast<double>(kStepNs));
    EXPECT_EQ(result.sample.decode_ns, static_cast<double>(kStepNs));
  }
  EXPECT_EQ(all[0].sample.candidate, kHalf);
  EXPECT_EQ(all[0].sample.block_bytes, 2000u + wire::kBlockHeaderBytes);
  EXPECT_EQ(all[1].sample.candidate, kExact);
  EXPECT_LT(all[1].sample.block_bytes, 4000u) << "its exponents are few";
}

TEST_F(ShadowTest, TheLossIsWhatIsLeftOutOfTheEnergy) {
  const auto values = ramp(1000, 1, 0.37f);
  shadow.offer(0, sample_of(values));
  shadow.do_work();
  const auto all = results();
  ASSERT_EQ(all.size(), 2u);
  const auto kept = group_test::decoded(group_test::lossy_block("bf16", values), values.size());
  double energy = 0, left_out = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double value = values[i], error = value - static_cast<double>(kept[i]);
    energy += value * value;
    left_out += error * error;
  }
  ASSERT_GT(left_out, 0);
  EXPECT_NEAR(all[0].sample.loss, left_out / energy, 1e-3 * left_out / energy);
  EXPECT_EQ(all[1].sample.loss, 0.0);
}

TEST_F(ShadowTest, WhatIsOwedBelongsToTheSample) {
  const std::vector<float> zeros(100), owed = ramp(100, 1, 0.1f);
  Shadow::Sample sample = sample_of(zeros);
  EXPECT_EQ(measured(sample), Candidates{kExact});
  sample.residual = owed.data();
  sample.state_scale = 2.0f;
  EXPECT_EQ(measured(sample), (Candidates{kHalf, kExact}));
  sample.state_scale = 0.0f;
  EXPECT_EQ(measured(sample), Candidates{kExact}) << "scaled away";
}

TEST_F(ShadowTest, WhatALongerSampleHasLeftIsNotMeasured) {
  measured(sample_of(ramp(1000, 1, 0.37f)));
  EXPECT_EQ(measured(sample_of(std::vector<float>(10))), Candidates{kExact});
}

TEST_F(ShadowTest, HalvesAreMeasuredInTheirOwnType) {
  const std::vector<float> values(1000, 1.0f);
  shadow.offer(0, sample_of(values, DType::f16));
  shadow.do_work();
  for (const ShadowResult& result : results()) EXPECT_EQ(result.sample.bytes, 2000u);
}

TEST_F(ShadowTest, OfALongTensorNoMoreIsMeasuredThanASampleHolds) {
  const std::vector<float> values(kAll + 1, 1.0f);
  shadow.offer(0, sample_of(values));
  shadow.do_work();
  const auto all = results();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].sample.bytes, std::uint64_t{4} * kAll);
}

// Zeros lose nothing by any recipe.
TEST_F(ShadowTest, ZerosAreNoSampleOfWhatLosesValues) {
  EXPECT_EQ(measured(sample_of(std::vector<float>(100))), Candidates{kExact});
}

TEST_F(ShadowTest, ValuesThatAreNotFiniteAreNoSampleOfWhatLosesValues) {
  for (const float one :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    auto values = ramp(100, 1, 1);
    values[50] = one;
    EXPECT_EQ(measured(sample_of(values)), Candidates{kExact}) << one;
  }
}

TEST_F(ShadowTest, WhatDoesNotGetShorterTravelsAsItIs) {
  std::vector<float> noise(1000);
  for (std::uint32_t i = 0; i < noise.size(); ++i) noise[i] = std::bit_cast<float>(mix32(i));
  shadow.offer(0, sample_of(noise));
  shadow.do_work();
  const auto all = results();
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(all.back().sample.candidate, kExact);
  EXPECT_EQ(all.back().sample.block_bytes, 4000u + wire::kBlockHeaderBytes);
  EXPECT_EQ(all.back().sample.loss, 0.0);
}

// ---- Samples that wait

TEST_F(ShadowTest, ASampleIsACopy) {
  auto values = ramp(1000, 1, 0.37f);
  shadow.offer(0, sample_of(values));
  std::fill(values.begin(), values.end(), 0.0f);
  shadow.do_work();
  EXPECT_EQ(results().size(), 2u);
}

TEST_F(ShadowTest, ALaneHasRoomForOneSampleUntilItIsMeasured) {
  const auto values = ramp(100, 1, 1);
  EXPECT_TRUE(shadow.has_room(0));
  shadow.offer(0, sample_of(values));
  EXPECT_FALSE(shadow.has_room(0));
  EXPECT_TRUE(shadow.has_room(1));
  shadow.do_work();
  EXPECT_TRUE(shadow.has_room(0));
}

TEST_F(ShadowTest, AllThatWaitIsMeasuredAtOnceAndNothingTwice) {
  const auto values = ramp(100, 1, 1);
  EXPECT_EQ(shadow.do_work(), 0);
  EXPECT_EQ(wakes, 0) << "there is nothing to say";
  Shadow::Sample sample = sample_of(values);
  shadow.offer(1, sample);
  sample.tensor = 43;
  shadow.offer(0, sample);
  EXPECT_EQ(shadow.do_work(), 2);
  EXPECT_EQ(wakes, 2);
  const auto all = results();
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[0].tensor, 43u);
  EXPECT_EQ(all[2].tensor, kTensor);
  EXPECT_EQ(shadow.do_work(), 0);
  EXPECT_TRUE(results().empty());
}

// The conductor is behind, and will have newer ones.
TEST_F(ShadowTest, ResultsThatHaveNoRoomAreDropped) {
  const auto values = ramp(8, 1, 1);
  std::size_t offered = 0;
  for (std::uint64_t tensor = 1; tensor <= 1000; ++tensor, offered += 2) {
    shadow.offer(0, {tensor, DType::f32, values, nullptr, 1.0f});
    EXPECT_EQ(shadow.do_work(), 1) << "and the lane has room again";
  }
  const auto all = results();
  ASSERT_FALSE(all.empty());
  EXPECT_LT(all.size(), offered);
  EXPECT_EQ(all.front().tensor, 1u);
  EXPECT_EQ(measured(sample_of(values)).size(), 2u) << "now there is room";
}

// ---- Calibration, and what measuring takes

TEST_F(ShadowTest, CalibrationMeasuresEveryCandidateOnASampleOfNoTensor) {
  shadow.calibrate();
  EXPECT_EQ(wakes, 1);
  const auto all = results();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].sample.candidate, kHalf);
  EXPECT_EQ(all[1].sample.candidate, kExact);
  EXPECT_GT(all[0].sample.loss, 0.0);
  for (const ShadowResult& result : all) {
    EXPECT_EQ(result.tensor, 0u);
    EXPECT_EQ(result.sample.bytes, std::uint64_t{4} * kAll);
  }
}

// Every machine measures the same values.
TEST_F(ShadowTest, TwoCalibrationsAreAlike) {
  shadow.calibrate();
  const auto once = results();
  measured(sample_of(ramp(100, 1, 1)));
  shadow.calibrate();
  const auto again = results();
  ASSERT_EQ(again.size(), once.size());
  for (std::size_t i = 0; i < once.size(); ++i) {
    EXPECT_EQ(again[i].sample.loss, once[i].sample.loss) << i;
    EXPECT_EQ(again[i].sample.block_bytes, once[i].sample.block_bytes) << i;
  }
}

TEST_F(ShadowTest, WhatMeasuringTakesIsCounted) {
  EXPECT_EQ(shadow.cpu_ns(), 0u);
  shadow.calibrate();
  const std::uint64_t once = shadow.cpu_ns();
  EXPECT_GE(once, 4 * kStepNs) << "two candidates, there and back";
  shadow.calibrate();
  EXPECT_EQ(shadow.cpu_ns(), 2 * once);
}

// A stopwatch that stands still says that all the time was somebody else's.
TEST_F(ShadowTest, AMeasurementThatTookMuchLongerThanItRanWasDisturbed) {
  const StepClock still(0);
  Shadow interrupted(
      recipes, 1, [] {}, &still);
  interrupted.calibrate();
  EXPECT_EQ(interrupted.disturbed(), 2u);
}

// An hour goes by at each look.
TEST_F(ShadowTest, AMeasurementThatRanAllTheTimeWasNotDisturbed) {
  const StepClock fast(3600 * std::uint64_t{1'000'000'000});
  Shadow alone(
      recipes, 1, [] {}, &fast);
  alone.calibrate();
  EXPECT_EQ(alone.disturbed(), 0u);
}

}  // namespace
}  // namespace tern::daemon::shadow_test
