#include "daemon/membership/coordinated_group.h"

#include <gtest/gtest.h>

namespace tern::daemon {
namespace {

using Joiner = CoordinatedGroup::Joiner;

constexpr LinkRef kOther = 7, kThird = 8;

Joiner joiner(LinkRef link, const char* node, const char* address, bool proven = true) {
  Joiner made;
  made.link = link;
  made.says.node = node;
  made.says.address = address;
  made.says.nonce = std::string("nonce of ") + node;
  made.proven = proven;
  return made;
}

TEST(CoordinatedGroup, ADaemonReplacesAnotherThatListenedAtItsAddress) {
  const Joiner old = joiner(kOther, "old", "10.0.0.1:7001");
  EXPECT_TRUE(joiner(kThird, "new", "10.0.0.1:7001").replaces(old));
  EXPECT_FALSE(joiner(kThird, "new", "10.0.0.2:7001").replaces(old)) << "another address";
  EXPECT_FALSE(joiner(kThird, "old", "10.0.0.1:7001").replaces(old)) << "the same daemon";
  EXPECT_FALSE(joiner(kThird, "new", "10.0.0.1:7001")
                   .replaces(joiner(kOther, "old", "10.0.0.1:7001", false)))
      << "nothing is known of who has not proven itself";
  EXPECT_FALSE(
      joiner(kThird, "new", "10.0.0.1:7001").replaces(joiner(kSelf, "own", "10.0.0.1:7001")))
      << "the coordinator's own daemon is not gone";
}

TEST(CoordinatedGroup, WhoWouldReplaceAJoinerIsAChallenger) {
  CoordinatedGroup group;
  EXPECT_EQ(&group.list_for(1, joiner(kOther, "first", "a")), &group.joiners);
  group.joiners[1] = joiner(kOther, "first", "a");
  EXPECT_EQ(&group.list_for(1, joiner(kThird, "second", "a")), &group.challengers);
  EXPECT_EQ(&group.list_for(1, joiner(kThird, "second", "b")), &group.joiners);
  EXPECT_EQ(&group.list_for(2, joiner(kThird, "second", "a")), &group.joiners);
}

TEST(CoordinatedGroup, AJoinIsFoundByItsLinkAndItsNonceInBothLists) {
  CoordinatedGroup group;
  group.joiners[1] = joiner(kOther, "first", "a");
  group.challengers[1] = joiner(kThird, "second", "a");
  EXPECT_EQ(group.find_joiner(1, {kOther, "nonce of first"}), &group.joiners[1]);
  EXPECT_EQ(group.find_joiner(1, {kThird, "nonce of second"}), &group.challengers[1]);
  EXPECT_EQ(group.find_joiner(1, {kThird, "nonce of first"}), nullptr) << "by another's link";
  EXPECT_EQ(group.find_joiner(1, {kOther, "guessed"}), nullptr);
  EXPECT_EQ(group.find_joiner(2, {kOther, "nonce of first"}), nullptr);
}

TEST(CoordinatedGroup, KnowsWhereItsNodesAndItsProvenJoinersAre) {
  CoordinatedGroup group;
  group.joiners[1] = joiner(kThird, "second", "b");
  group.joiners[2] = joiner(kOther, "first", "a");
  group.joiners[3] = joiner(kOther, "first", "a");
  group.joiners[4] = joiner(9, "third", "c", false);
  EXPECT_EQ(group.links_of_proven(), (std::vector<LinkRef>{kOther, kThird}));
  for (const LinkRef link : {kThird, kOther}) group.nodes.emplace_back().link = link;
  EXPECT_EQ(group.links_of_nodes(), (std::vector<LinkRef>{kThird, kOther}));
}

TEST(CoordinatedGroup, AForgottenLinkTakesItsJoinersWithIt) {
  CoordinatedGroup group;
  group.joiners[1] = joiner(kOther, "first", "a");
  group.joiners[2] = joiner(kOther, "first", "a");
  group.joiners[3] = joiner(kThird, "second", "b");
  group.challengers[3] = joiner(kOther, "first", "b");
  group.forget_joiners(kOther, 1);
  EXPECT_EQ(group.joiners.size(), 2u);
  EXPECT_EQ(group.challengers.size(), 1u);
  group.forget_joiners_by([](LinkRef link) { return link == kOther; });
  EXPECT_EQ(group.joiners.size(), 1u);
  EXPECT_TRUE(group.joiners.contains(3));
  EXPECT_TRUE(group.challengers.empty());
}

TEST(CoordinatedGroup, IsWaitedForAndOfOthersOnlyByWhatIsProven) {
  CoordinatedGroup group;
  group.joiners[1] = joiner(kOther, "first", "a", false);
  EXPECT_EQ(group.proven(), 0u);
  EXPECT_FALSE(group.is_waited_for());
  EXPECT_FALSE(group.is_of_others());
  EXPECT_FALSE(group.idle());
  group.joiners[1].proven = true;
  EXPECT_TRUE(group.is_waited_for());
  EXPECT_TRUE(group.is_of_others());
  group.joiners[1].link = kSelf;
  EXPECT_FALSE(group.is_of_others());
}

TEST(CoordinatedGroup, IsUnusedWhereNobodyComesBackToIt) {
  CoordinatedGroup group;
  EXPECT_TRUE(group.is_unused()) << "it was not minted here";
  group.joiners[1] = joiner(kOther, "first", "a", false);
  EXPECT_FALSE(group.is_unused());
  group.joiners.clear();
  group.known = true;
  EXPECT_FALSE(group.is_unused()) << "ranks may come to it";
  group.part = CoordinatedGroup::Part::child;
  EXPECT_TRUE(group.is_unused()) << "nobody comes back to a part of a split";
  group.phase = CoordinatedGroup::Phase::active;
  EXPECT_FALSE(group.is_unused());
}

}  // namespace
}  // namespace tern::daemon
