#include "daemon/lane/user_weights.h"

#include <gtest/gtest.h>

namespace tern::daemon {
namespace user_weights_test {

constexpr std::uint32_t kAlice = 1001, kBob = 1002;

UserWeights weights_of(std::initializer_list<UserWeights::Job> jobs) {
  UserWeights weights;
  for (const auto& job : jobs) weights.add(job);
  return weights;
}

TEST(UserWeights, OneUsersJobsShareByWeight) {
  const UserWeights weights = weights_of({{kAlice, 1}, {kAlice, 3}});
  EXPECT_FALSE(weights.several_users());
  EXPECT_EQ(weights.part_of(64, {kAlice, 1}), 16);
  EXPECT_EQ(weights.part_of(64, {kAlice, 3}), 48);
  EXPECT_EQ(weights.part_of_user(64, kAlice), 64);
}

TEST(UserWeights, AUserOfManyJobsHasNoMoreThanOneOfASingleJob) {
  UserWeights weights = weights_of({{kBob, 2}});
  for (int i = 0; i < 9; ++i) weights.add({kAlice, 2});
  EXPECT_TRUE(weights.several_users());
  EXPECT_EQ(weights.part_of_user(90, kAlice), 45);
  EXPECT_EQ(weights.part_of(90, {kBob, 2}), 45);
  EXPECT_EQ(weights.part_of(90, {kAlice, 2}), 5);
}

TEST(UserWeights, AUserWeighsAsHisHeaviestJob) {
  const UserWeights weights = weights_of({{kAlice, 1}, {kAlice, 3}, {kBob, 1}});
  EXPECT_DOUBLE_EQ(weights.part_of_user(1.0, kAlice), 0.75);
  EXPECT_DOUBLE_EQ(weights.part_of(1.0, {kBob, 1}), 0.25);
  EXPECT_DOUBLE_EQ(weights.part_of(1.0, {kAlice, 3}), 0.75 * 3 / 4);
}

TEST(UserWeights, WhoWasNotAddedHasAtMostItsWeightAgainstAll) {
  const UserWeights weights = weights_of({{kAlice, 4}});
  EXPECT_EQ(weights.part_of(64, {kBob, 1}), 16);
  EXPECT_EQ(weights.part_of(64, {kBob, 9}), 64);
}

TEST(UserWeights, WithoutJobsAllIsEverybodys) {
  UserWeights weights = weights_of({{kAlice, 4}, {kBob, 4}});
  weights.clear();
  EXPECT_FALSE(weights.several_users());
  EXPECT_EQ(weights.part_of(64, {kBob, 1}), 64);
  EXPECT_EQ(weights.part_of_user(64, kBob), 64);
}

}  // namespace user_weights_test
}  // namespace tern::daemon
