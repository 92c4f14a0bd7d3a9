#include "daemon/lane/lane_groups.h"

#include <gtest/gtest.h>

#include "tests/daemon/lane/lane_rig.h"

namespace tern::daemon::lane_groups_test {
namespace {

class LaneGroupsTest : public ::testing::Test {
 protected:
  LaneGroupsTest() {
    groups.add(first);
    groups.add(second);
  }
  // The link of the first group to node 1.
  LanePeer& attach() {
    first.core().attach(lanes.near.resources, lanes.near.links, job);
    return *first.core().peers()[1];
  }
  // As node 1 of the first group sends it.
  wire::FrameHeader frame() const {
    wire::FrameHeader header;
    header.group = first.setup().token;
    header.epoch = first.setup().epoch;
    header.source_node = 1;
    return header;
  }
  void expect_breach(const wire::FrameHeader& header) {
    const LaneGroups::Addressee addressee = groups.addressee(header, peer);
    EXPECT_EQ(addressee.group, nullptr);
    EXPECT_TRUE(addressee.is_known);
    EXPECT_FALSE(addressee.keeps_protocol);
  }

  lane_test::TwoLanes lanes;
  LaneJob job;
  LaneGroup first{lane_test::group_of(2, 1), {}};
  LaneGroup second{lane_test::group_of(2, 2), {}};
  LanePeer& peer = attach();
  LaneGroups groups;
};

TEST_F(LaneGroupsTest, AreFoundByNumberUntilTheyAreRemoved) {
  EXPECT_EQ(groups.by_number(1), &first);
  EXPECT_EQ(groups.by_number(2), &second);
  EXPECT_EQ(groups.by_number(1001), nullptr) << "clients do not know tokens";
  groups.remove(first);
  EXPECT_EQ(groups.by_number(1), nullptr);
  EXPECT_EQ(groups.by_number(2), &second);
  EXPECT_EQ(groups.all().size(), 1u);
}

TEST_F(LaneGroupsTest, OfOneUserTakeTurns) {
  LaneGroups::OfUser& user = groups.take_turn();
  EXPECT_EQ(groups.users(), 1u);
  EXPECT_EQ(&user.next(), &first);
  EXPECT_EQ(&user.next(), &first) << "until it is passed on";
  user.pass_on();
  EXPECT_EQ(&user.next(), &second);
  user.pass_on();
  EXPECT_EQ(&user.next(), &first);
  user.pass_on();
  groups.remove(second);
  EXPECT_EQ(&user.next(), &first);
  user.pass_on();
  EXPECT_EQ(&user.next(), &first);
  groups.remove(first);
  EXPECT_EQ(groups.users(), 0u);
}

TEST_F(LaneGroupsTest, AGroupThatGoesTakesNoTurnOfAnother) {
  LaneGroup third{lane_test::group_of(2, 3), {}};
  groups.add(third);
  LaneGroups::OfUser& user = groups.take_turn();
  user.pass_on();
  groups.remove(first);
  EXPECT_EQ(&user.next(), &second);
}

TEST_F(LaneGroupsTest, UsersTakeTurnsHoweverManyGroupsTheyHave) {
  GroupSetup of_another = lane_test::group_of(2, 3);
  of_another.account = 1001;
  LaneGroup third{of_another, {}};
  groups.add(third);
  EXPECT_EQ(groups.users(), 2u);
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(groups.take_turn().account(), 0u);
    LaneGroups::OfUser& other = groups.take_turn();
    EXPECT_EQ(other.account(), 1001u);
    EXPECT_EQ(&other.next(), &third);
  }
}

TEST_F(LaneGroupsTest, AFrameBelongsToTheGroupOfItsToken) {
  const LaneGroups::Addressee addressee = groups.addressee(frame(), peer);
  EXPECT_EQ(addressee.group, &first);
  EXPECT_TRUE(addressee.is_known);
  EXPECT_TRUE(addressee.keeps_protocol);
}

// What it fills would be noted at the group's own link, which may be filling something itself.
TEST_F(LaneGroupsTest, AFrameOverAnotherLinkOfTheNodeIsNobodys) {
  LanePeer other{4096};
  other.id = peer.id;
  const LaneGroups::Addressee addressee = groups.addressee(frame(), other);
  EXPECT_EQ(addressee.group, nullptr);
  EXPECT_TRUE(addressee.keeps_protocol);
}

TEST_F(LaneGroupsTest, AFrameOfAGroupThatIsGoneIsNoBreach) {
  groups.remove(first);
  const LaneGroups::Addressee addressee = groups.addressee(frame(), peer);
  EXPECT_EQ(addressee.group, nullptr);
  EXPECT_FALSE(addressee.is_known);
  EXPECT_TRUE(addressee.keeps_protocol);
}

TEST_F(LaneGroupsTest, ALateFrameOfAnEndedGroupIsNoBreach) {
  first.end(Errc::group_left, "ended");
  const LaneGroups::Addressee addressee = groups.addressee(frame(), peer);
  EXPECT_EQ(addressee.group, nullptr);
  EXPECT_TRUE(addressee.is_known);
  EXPECT_TRUE(addressee.keeps_protocol);
}

TEST_F(LaneGroupsTest, NobodyMaySpeakForAnotherNodeOrEpoch) {
  wire::FrameHeader header = frame();
  header.epoch = 2;
  expect_breach(header);
  header = frame();
  header.source_node = 0;
  expect_breach(header);
  header = frame();
  header.source_node = 2;
  expect_breach(header);
  peer.id = {99, 99};
  expect_breach(frame());
}

TEST_F(LaneGroupsTest, DropThePagesOfOneNodeAfterTheOther) {
  const auto with_values = [](std::uint64_t number) {
    GroupSetup setup = lane_test::group_of(2, number);
    setup.shape.eager_bytes = 256;
    return setup;
  };
  LaneGroup third{with_values(3), *EagerRoom::make(with_values(3).shape)};
  LaneGroup fourth{with_values(4), *EagerRoom::make(with_values(4).shape)};
  LaneGroups with_rooms;
  with_rooms.add(third);
  with_rooms.add(fourth);
  SlabPool& last = fourth.room().offered()[1];
  const std::uint32_t slab = last.take();
  last.slab(slab)[0] = std::byte{1};
  last.give(slab);
  // Announcements and offers of two nodes each.
  LaneGroups::Dropped dropped;
  for (int step = 1; step < 8; ++step) EXPECT_TRUE(with_rooms.drop_pages(dropped)) << step;
  EXPECT_EQ(last.slab(slab)[0], std::byte{1});
  EXPECT_TRUE(with_rooms.drop_pages(dropped));
  EXPECT_EQ(last.slab(slab)[0], std::byte{0});
  EXPECT_FALSE(with_rooms.drop_pages(dropped));
}

TEST_F(LaneGroupsTest, OpsAreThoseOfAllGroups) {
  EXPECT_FALSE(groups.any_live_op());
  lane_test::submit(first.core().ops(), {0, 0}, lane_test::all_reduce_of(4));
  lane_test::submit(second.core().ops(), {0, 0}, lane_test::all_reduce_of(4));
  lane_test::submit(second.core().ops(), {0, 1}, lane_test::all_reduce_of(4));
  EXPECT_TRUE(groups.any_live_op());
  for (LaneGroup* group : groups) group->on_timer(lane_test::kSecond);
  EXPECT_EQ(groups.ops_in_flight(), 3u);
}

}  // namespace
}  // namespace tern::daemon::lane_groups_test
