#include "daemon/tuning/tuning_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tern::daemon {
namespace tuning_policy_test {
namespace {

using ::testing::HasSubstr;

TuningPolicy policy_of(const std::string& text) {
  auto policy = TuningPolicy::parse(text);
  EXPECT_TRUE(policy) << policy.error().text;
  return policy ? *policy : TuningPolicy();
}

std::string mistake_in(const std::string& text) {
  const auto policy = TuningPolicy::parse(text);
  EXPECT_FALSE(policy);
  return policy ? "" : policy.error().text;
}

TEST(TuningPolicy, TheFirstRuleThatFitsHolds) {
  const TuningPolicy policy = policy_of("embed* lossless; big/* aggressive; * loss<=0.25");
  EXPECT_EQ(policy.advice("any", "embedding").level, tuner::Level::lossless);
  EXPECT_EQ(policy.advice("big", "layer").level, tuner::Level::aggressive);
  EXPECT_EQ(policy.advice("other", "layer").loss, 0.25);
}

TEST(TuningPolicy, WeightsAreOfJobs) {
  const TuningPolicy policy = policy_of("prod-*/* weight=10; */* weight=2");
  EXPECT_EQ(policy.weight("prod-1", 1000), 10u);
  EXPECT_EQ(policy.weight("test", 1000), 2u);
  EXPECT_EQ(policy_of("").weight("test", 1000), 1u);
}

TEST(TuningPolicy, AWeightIsOfTheWholeNameOfAJob) {
  const TuningPolicy policy = policy_of("team/train/* weight=4; other/* weight=3");
  EXPECT_EQ(policy.weight("team/train", 1000), 4u);
  EXPECT_EQ(policy.weight("team", 1000), 1u);
  EXPECT_EQ(policy.weight("other/train", 1000), 1u);
}

// A label says nothing about who has chosen it.
TEST(TuningPolicy, AWeightMayBeForOneUsersJobs) {
  const TuningPolicy policy = policy_of("prod/* weight=10 user=1000; prod/* user=root weight=3");
  EXPECT_EQ(policy.weight("prod", 1000), 10u);
  EXPECT_EQ(policy.weight("prod", 0), 3u);
  EXPECT_EQ(policy.weight("prod", 1001), 1u);
}

TEST(TuningPolicy, ARuleOfWeightAloneHidesNoOther) {
  const TuningPolicy policy = policy_of("big/* weight=4; * lossless; big/* aggressive weight=9");
  EXPECT_EQ(policy.advice("big", "layer").level, tuner::Level::lossless);
  EXPECT_EQ(policy.weight("big", 1000), 4u);
}

TEST(TuningPolicy, MistakesNameWhatIsAllowed) {
  EXPECT_THAT(mistake_in("big/* weight=0"), HasSubstr("from 1 to 100"));
  EXPECT_THAT(mistake_in("big/* weight=101"), HasSubstr("from 1 to 100"));
  EXPECT_THAT(mistake_in("big/* weight=1.5"), HasSubstr("from 1 to 100"));
  EXPECT_THAT(mistake_in("big/* weight="), HasSubstr("from 1 to 100"));
  EXPECT_THAT(mistake_in("layer* weight=2"), HasSubstr("write JOB/* weight=2"));
  EXPECT_THAT(mistake_in("layer*"), HasSubstr("says nothing after its pattern"));
  EXPECT_THAT(mistake_in("big/* weight=2 user=nobody-has-this-name"), HasSubstr("no such user"));
  EXPECT_THAT(mistake_in("big/* lossless user=root"), HasSubstr("weight=NUMBER user=NAME"));
  EXPECT_THAT(mistake_in("big/* lossless weight=2 user=root"), HasSubstr("a rule of their own"));
  EXPECT_THAT(mistake_in("* strong"), HasSubstr("is none of lossless"));
}

}  // namespace
}  // namespace tuning_policy_test
}  // namespace tern::daemon
