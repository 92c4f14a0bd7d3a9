#include "daemon/membership/coordinated_groups.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "daemon/membership/hmac.h"

namespace tern::daemon::coordinated_groups_test {
namespace {

constexpr std::uint32_t kUser = 1000, kOther = 1001;
constexpr const char* kThere = "the host there";

class CoordinatedGroupsTest : public ::testing::Test {
 protected:
  // The next one, of which nobody has heard.
  GroupId mint() { return *mint_group_id("here", 7000); }
  std::string learn(const GroupId& id, std::uint32_t user = kUser) {
    groups.learn(id, user);
    return to_hex(id.uid);
  }
  std::string learn(std::uint32_t user = kUser) { return learn(mint(), user); }
  // A rank waits there, and so the group is not idle.
  void occupy(const std::string& uid) { groups.at(uid).joiners[0]; }
  // Of which no other user has any.
  static CoordinatedGroups::Children children(std::size_t count) { return {count, count}; }

  CoordinatedGroups groups;
};

TEST_F(CoordinatedGroupsTest, WhatIsLearntIsNewsOnceAndHasItsSecret) {
  const GroupId id = mint();
  EXPECT_TRUE(groups.learn(id, kUser));
  EXPECT_FALSE(groups.learn(id, kUser));
  ASSERT_NE(groups.find(to_hex(id.uid)), nullptr);
  EXPECT_TRUE(groups.at(to_hex(id.uid)).known);
  EXPECT_EQ(groups.at(to_hex(id.uid)).secret, id.secret);
  EXPECT_EQ(groups.find(std::string(32, '0')), nullptr);
}

TEST_F(CoordinatedGroupsTest, WhoWasFirstIsCharged) {
  const GroupId id = mint();
  learn(id, kUser);
  learn(id, kOther);
  EXPECT_EQ(groups.of_user(kUser), 1u);
  EXPECT_EQ(groups.of_user(kOther), 0u);
}

TEST_F(CoordinatedGroupsTest, AStrangerIsChargedToItsSourceUntilItIsKnown) {
  const GroupId id = mint();
  const std::string uid = to_hex(id.uid);
  ASSERT_TRUE(groups.add_stranger(uid, kThere));
  occupy(uid);
  EXPECT_FALSE(groups.at(uid).known);
  for (std::size_t i = 1; i < CoordinatedGroups::kStrangers.of_one; ++i) {
    const std::string other = to_hex(mint().uid);
    ASSERT_TRUE(groups.add_stranger(other, kThere));
    occupy(other);
  }
  const std::string late = to_hex(mint().uid);
  const Status refused = groups.add_stranger(late, kThere);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::quota_exceeded);
  EXPECT_NE(refused.error().text.find(kThere), std::string::npos);
  EXPECT_EQ(groups.find(late), nullptr);
  EXPECT_TRUE(groups.learn(id, kUser));
  EXPECT_TRUE(groups.add_stranger(late, kThere)) << "the place is free again";
}

TEST_F(CoordinatedGroupsTest, TheUsersOldestIdleGroupMakesRoom) {
  const std::string busy = learn(), oldest = learn();
  occupy(busy);
  for (std::size_t i = 2; i < CoordinatedGroups::kPerUser; ++i) learn();
  const std::string others = learn(kOther);
  learn();
  EXPECT_EQ(groups.of_user(kUser), CoordinatedGroups::kPerUser);
  EXPECT_EQ(groups.find(oldest), nullptr);
  EXPECT_NE(groups.find(busy), nullptr);
  EXPECT_NE(groups.find(others), nullptr);
}

TEST_F(CoordinatedGroupsTest, ChildrenFindRoomAsFarAsGroupsAreIdle) {
  const std::string parent = learn();
  occupy(parent);
  while (groups.of_user(kUser) < CoordinatedGroups::kPerUser) learn();
  EXPECT_TRUE(groups.make_room_for_children(kUser, children(CoordinatedGroups::kPerUser)));
  EXPECT_EQ(groups.of_user(kUser), CoordinatedGroups::kPerUser) << "there was room";
  EXPECT_TRUE(
      groups.make_room_for_children(kUser, children(CoordinatedGroups::kPerUserWhoSplits - 1)));
  EXPECT_EQ(groups.of_user(kUser), 1u);
  EXPECT_FALSE(
      groups.make_room_for_children(kUser, children(CoordinatedGroups::kPerUserWhoSplits)));
  EXPECT_FALSE(groups.make_room_for_children(
      kUser, {.of_user = 1, .of_all = CoordinatedGroups::kMostGroups}))
      << "children of other users are to begin";
  EXPECT_NE(groups.find(parent), nullptr);
}

TEST_F(CoordinatedGroupsTest, InAFullTableAUserWithoutGroupsHasNoneToGive) {
  for (std::uint32_t user = 1; groups.size() < CoordinatedGroups::kMostGroups; ++user) {
    for (std::size_t i = 0; i < CoordinatedGroups::kPerUser; ++i) occupy(learn(user));
  }
  EXPECT_FALSE(groups.make_room_for_children(kUser, children(1)));
  EXPECT_FALSE(groups.add_stranger(std::string(32, 'e'), kThere));
}

TEST_F(CoordinatedGroupsTest, WhatIsTakenIsChargedNoMore) {
  const std::string uid = learn();
  groups.at(uid).epoch = 7;
  const CoordinatedGroup taken = groups.take(uid);
  EXPECT_EQ(taken.epoch, 7u);
  EXPECT_EQ(groups.find(uid), nullptr);
  EXPECT_EQ(groups.of_user(kUser), 0u);
}

TEST_F(CoordinatedGroupsTest, ForgetsWhatNobodyCanComeBackTo) {
  const std::string minted = learn(), child = learn(), full_child = learn();
  groups.at(child).part = groups.at(full_child).part = CoordinatedGroup::Part::child;
  groups.at(full_child).phase = CoordinatedGroup::Phase::active;
  const std::string waiting = to_hex(mint().uid), stranger = to_hex(mint().uid);
  groups.add_own(waiting);
  occupy(waiting);
  ASSERT_TRUE(groups.add_stranger(stranger, kThere));
  groups.forget_if_unused(waiting);
  EXPECT_NE(groups.find(waiting), nullptr);
  groups.forget_unused();
  EXPECT_EQ(groups.find(child), nullptr);
  EXPECT_EQ(groups.find(stranger), nullptr);
  EXPECT_EQ(groups.size(), 3u) << "one that was minted, one in use, one that a rank waits in";
  EXPECT_EQ(groups.of_user(kUser), 2u);
  groups.at(waiting).joiners.clear();
  groups.forget_if_unused(waiting);
  EXPECT_EQ(groups.find(waiting), nullptr);
  EXPECT_NE(groups.find(minted), nullptr);
}

}  // namespace
}  // namespace tern::daemon::coordinated_groups_test
