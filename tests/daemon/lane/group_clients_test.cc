#include "daemon/lane/group_clients.h"

#include <gtest/gtest.h>

#include "daemon/lane/touch_pages.h"
#include "group_rig.h"
#include "lane_rig.h"

namespace tern::daemon::group_clients_test {
namespace {

using collective::OpId;
using lane_test::TestClient;

constexpr std::uint64_t kFirst = 7, kSecond = 9;  // clients of the ranks 0 and 2

// A group with two ranks on this node, and clients of its lane, of which one has no rank.
class GroupClientsTest : public group_test::OneNode {
 protected:
  GroupClientsTest() {
    for (TestClient* const one : {&stranger, &second, &first}) lane().add(one->memory);
  }
  LaneClients& lane() { return node.resources.clients; }
  LaneClient& client(std::uint64_t id) { return *lane().find(id); }
  static GroupSetup two_ranks() {
    GroupSetup setup = group_test::setup_of({.ranks = {{0, 2}, {1}}}, 0);
    setup.local_clients = {kFirst, kSecond};
    return setup;
  }
  static void lose_a_page(const TestClient& one) {
    lane_test::take_first_page(one);
    touch_pages(one.memory.segment.arena().first(1));
    ASSERT_TRUE(one.memory.segment.has_lost_pages());
  }
  OpId begin_op() {
    const auto body = lane_test::all_reduce_of(8);
    lane_test::submit(core.ops(), {2, 1}, body, 0);
    return lane_test::submit(core.ops(), {2, 1}, body, 1);
  }

  TestClient first{kFirst}, second{kSecond}, stranger{8};
  GroupCore core{two_ranks(), node};
  GroupClients clients{core};
};

TEST_F(GroupClientsTest, EachRankHasItsClient) {
  clients.attach(lane());
  ASSERT_EQ(clients.all().size(), 2u);
  EXPECT_EQ(clients[0], &client(kFirst));
  EXPECT_EQ(clients[1], &client(kSecond));
  EXPECT_EQ(clients.all()[1], clients[1]);
  EXPECT_EQ(clients.local_rank(client(kFirst)), 0u);
  EXPECT_EQ(clients.local_rank(client(kSecond)), 1u);
}

TEST_F(GroupClientsTest, OtherClientsOfTheLaneAreNotTheGroups) {
  EXPECT_FALSE(clients.has(client(kFirst))) << "not attached";
  clients.attach(lane());
  EXPECT_TRUE(clients.has(client(kFirst)));
  EXPECT_TRUE(clients.has(client(kSecond)));
  EXPECT_FALSE(clients.has(client(8)));
}

// Its process has ended before the group was made.
TEST_F(GroupClientsTest, ARankWhoseClientTheLaneDoesNotHaveHasNone) {
  lane().drop(client(kFirst));
  clients.attach(lane());
  EXPECT_EQ(clients[0], nullptr);
  EXPECT_EQ(clients[1], &client(kSecond));
}

TEST_F(GroupClientsTest, WhatIsForgottenIsNobodysClient) {
  clients.attach(lane());
  clients.forget(client(8));
  EXPECT_TRUE(clients.has(client(kFirst)));
  EXPECT_TRUE(clients.has(client(kSecond)));
  clients.forget(client(kFirst));
  EXPECT_EQ(clients[0], nullptr);
  EXPECT_FALSE(clients.has(client(kFirst)));
  EXPECT_EQ(clients.local_rank(client(kSecond)), 1u) << "the others keep their places";
}

TEST_F(GroupClientsTest, ARankThatHasLeftHasNoClient) {
  clients.attach(lane());
  clients.forget_rank(1);
  EXPECT_FALSE(clients.has(client(kSecond)));
  EXPECT_EQ(clients[0], &client(kFirst));
}

// ---- Lost pages

TEST_F(GroupClientsTest, WhileAllPagesAreThereAnOpGoesOn) {
  clients.attach(lane());
  const OpId op = begin_op();
  touch_pages(first.memory.segment.arena());
  EXPECT_FALSE(clients.fail_if_pages_are_lost(op));
  EXPECT_FALSE(core.op(op).failed());
}

TEST_F(GroupClientsTest, ALostPageFailsTheOpForTheRankWhoseItIs) {
  clients.attach(lane());
  const OpId op = begin_op();
  lose_a_page(second);
  EXPECT_TRUE(clients.fail_if_pages_are_lost(op));
  EXPECT_EQ(core.op(op).status, Errc::rank_lost);
  EXPECT_EQ(core.op(op).about_rank, 2u) << "its number in the group";
  EXPECT_STREQ(core.op(op).text, "a page of the rank's arena is not there");
}

TEST_F(GroupClientsTest, TheFirstRankThatHasLostPagesIsNamed) {
  clients.attach(lane());
  const OpId op = begin_op();
  lose_a_page(second);
  lose_a_page(first);
  EXPECT_TRUE(clients.fail_if_pages_are_lost(op));
  EXPECT_EQ(core.op(op).about_rank, 0u);
}

TEST_F(GroupClientsTest, AnOpThatHasFailedKeepsItsReason) {
  clients.attach(lane());
  const OpId op = begin_op();
  core.ops().fail(op, {Errc::cancelled, 0, "enough"});
  EXPECT_TRUE(clients.fail_if_pages_are_lost(op));
  lose_a_page(second);
  EXPECT_TRUE(clients.fail_if_pages_are_lost(op));
  EXPECT_EQ(core.op(op).status, Errc::cancelled);
  EXPECT_STREQ(core.op(op).text, "enough");
}

TEST_F(GroupClientsTest, PagesOfWhoHasNoRankHereAreNotLookedAt) {
  clients.attach(lane());
  const OpId op = begin_op();
  lose_a_page(stranger);
  lose_a_page(second);
  clients.forget_rank(1);
  EXPECT_FALSE(clients.fail_if_pages_are_lost(op));
}

}  // namespace
}  // namespace tern::daemon::group_clients_test
