#include "daemon/conductor/groups.h"

#include <algorithm>
#include <latch>
#include <thread>

#include "part_rig.h"
#include "tests/daemon/service/log_lines.h"

namespace tern::daemon::conductor_test {
namespace {

class GroupsTest : public PartRig {
 protected:
  void SetUp() override {
    greet(connect(1));
    greet(connect(2));
    group_ = &add_group({1, 2});
    take_all();
  }
  void take_all() {
    for (std::uint32_t lane = 0; lane < kLanes; ++lane) commands_of(lane);
  }
  void settle() { groups_.settle(TimeSlice(clock_, kSecond)); }
  template <typename Kind>
  std::size_t count_of(std::uint32_t lane) {
    std::size_t count = 0;
    for (const Command& command : commands_of(lane)) {
      count += std::holds_alternative<Kind>(command) ? 1 : 0;
    }
    return count;
  }

  MemberGroup* group_ = nullptr;
};

TEST_F(GroupsTest, AreFoundByNumberEpochAndLane) {
  EXPECT_EQ(groups_.by_number(group_->number), group_);
  EXPECT_EQ(groups_.by_epoch(kSelf, group_->uid, 1), group_);
  EXPECT_EQ(groups_.by_epoch(kSelf, group_->uid, 2), nullptr);
  EXPECT_EQ(groups_.by_epoch(kSelf + 1, group_->uid, 1), nullptr);
  EXPECT_EQ(groups_.of_lane(group_->lanes[1].get()), group_);
  EXPECT_TRUE(groups_.has_member(2));
  EXPECT_FALSE(groups_.has_member(3));
  groups_.forget(*group_);
  EXPECT_TRUE(groups_.all().empty());
}

// What other nodes have filled takes the kernel long to free.
TEST_F(GroupsTest, ThatAreForgottenAreFreedElsewhereAndAreTheirAccountsUntilThen) {
  Disposal freeing;
  Groups groups(outlets_, flights_, freeing);
  std::latch begun(1), may_end(1);
  freeing.take(kAlice, [&] {
    begun.count_down();
    may_end.wait();
    return false;
  });
  begun.wait();
  auto group = std::make_unique<MemberGroup>();
  group->account = kAlice;
  group->memory_bytes = 1000;
  for (int lane = 0; lane < 2; ++lane) {
    const GroupSetup& setup = group_->lanes[0]->setup();
    group->lanes.push_back(std::make_unique<LaneGroup>(setup, *EagerRoom::make(setup.shape)));
  }
  MemberGroup& added = *group;
  groups.add(std::move(group));
  groups.forget(added);
  EXPECT_TRUE(groups.all().empty());
  EXPECT_EQ(groups.bytes_being_freed(kAlice), 1000u);
  EXPECT_EQ(groups.bytes_being_freed(kBob), 0u);
  EXPECT_EQ(groups.bytes_being_freed(), 1000u);
  may_end.count_down();
  while (groups.bytes_being_freed() > 0) std::this_thread::yield();
}

TEST_F(GroupsTest, AreReadyWhenAllLanesAre) {
  groups_.on_ready(*group_);
  EXPECT_TRUE(mail("ready").empty());
  groups_.on_ready(*group_);
  EXPECT_EQ(mail("ready").size(), 1u);
}

TEST_F(GroupsTest, AStartTellsEveryRankOnce) {
  groups_.start(*group_);
  groups_.start(*group_);
  for (const std::uint64_t request : {101u, 102u}) {
    ASSERT_TRUE(answer_to(request));
    EXPECT_EQ(answer_to(request)->kind, shm::PacketKind::group_joined);
  }
  EXPECT_EQ(
      std::count_if(port_.told.begin(), port_.told.end(),
                    [](const Told& told) { return told.kind == shm::PacketKind::group_joined; }),
      2);
}

TEST_F(GroupsTest, ThatDoNotStartInTimeEnd) {
  EXPECT_EQ(groups_.next_deadline_ns(), clock_.now_ns() + kSecond);
  settle();
  EXPECT_FALSE(group_->has_ended());
  clock_.advance_ns(kSecond);
  settle();
  EXPECT_TRUE(group_->has_ended());
  EXPECT_EQ(group_->end_code, Errc::timeout);
  // Nobody has a handle to a group that has not started.
  EXPECT_EQ(answer_to(101)->status, Errc::timeout);
  EXPECT_EQ(group_->phase, MemberGroup::Phase::removing);
}

TEST_F(GroupsTest, AnEndIsToldToCoordinatorAndLanesOnce) {
  groups_.start(*group_);
  groups_.end(*group_, Errc::peer_lost, "a peer was lost", true);
  groups_.end(*group_, Errc::timeout, "again", true);
  const auto sent = mail("ended");
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0]["text"], "a peer was lost");
  EXPECT_EQ(count_of<command::EndGroup>(0), 1u);
  EXPECT_EQ(counters_->groups_ended, 1u);
  // The ranks still have their handles.
  EXPECT_NE(group_->phase, MemberGroup::Phase::removing);
}

TEST_F(GroupsTest, ARankThatLeavesIsAnsweredWhenItsMemoryIsReleased) {
  groups_.start(*group_);
  auto packet = shm::make_packet<shm::GroupLeavePacket>(shm::PacketKind::group_leave, 60);
  packet.group = group_->number;
  groups_.on_leave(1, packet);
  EXPECT_EQ(count_of<command::RankLeft>(1), 1u);
  EXPECT_FALSE(answer_to(60));
  packet.header.request = 61;
  groups_.on_leave(1, packet);
  EXPECT_EQ(answer_to(61)->status, Errc::unknown_group);
  EXPECT_FALSE(groups_.on_lane_released(*group_, group_->ranks[0]));
  EXPECT_FALSE(answer_to(60));
  EXPECT_TRUE(groups_.on_lane_released(*group_, group_->ranks[0]));
  EXPECT_EQ(answer_to(60)->status, Errc::ok);
  groups_.tell_left(*group_, group_->ranks[0]);
  EXPECT_EQ(mail("left").size(), 1u);
}

// Clients are told the number when the group starts, and may guess it before.
TEST_F(GroupsTest, ARankThatHasNotJoinedCannotLeave) {
  auto packet = shm::make_packet<shm::GroupLeavePacket>(shm::PacketKind::group_leave, 60);
  packet.group = group_->number;
  groups_.on_leave(1, packet);
  EXPECT_EQ(answer_to(60)->status, Errc::unknown_group);
  EXPECT_EQ(count_of<command::RankLeft>(1), 0u);
  groups_.start(*group_);
  packet.header.request = 61;
  groups_.on_leave(1, packet);
  EXPECT_EQ(count_of<command::RankLeft>(1), 1u);
}

TEST_F(GroupsTest, TheLastLaneThatLetsGoIsTold) {
  EXPECT_FALSE(groups_.on_lane_removed(*group_));
  EXPECT_TRUE(groups_.on_lane_removed(*group_));
}

TEST_F(GroupsTest, AClientThatIsGoneEndsThem) {
  groups_.start(*group_);
  groups_.lose_client(2, "its process ended");
  EXPECT_EQ(group_->end_code, Errc::rank_lost);
  EXPECT_EQ(group_->end_text, "lost rank 1 on node 0 (here:7000, ranks 0,1): its process ended");
  EXPECT_EQ(group_->ranks[1].phase, MemberRank::Phase::left);
  EXPECT_NE(group_->phase, MemberGroup::Phase::removing);
  groups_.lose_client(1, "its process ended");
  EXPECT_EQ(group_->phase, MemberGroup::Phase::removing);
}

TEST_F(GroupsTest, ACoordinatorThatIsLostIsNotTold) {
  group_->coordinator = 5;
  groups_.lose_coordinator(4, "it broke");
  settle();
  EXPECT_FALSE(group_->has_ended());
  groups_.lose_coordinator(5, "it broke");
  settle();
  EXPECT_EQ(group_->end_code, Errc::peer_lost);
  EXPECT_TRUE(mail("ended").empty());
}

TEST_F(GroupsTest, ThatAUserMakesAndEndsWithoutEndHaveFewLinesAndACount) {
  greet(connect(3, kAlice));
  greet(connect(4, kBob));
  const LogLines lines;
  for (int i = 0; i < 500; ++i) {
    MemberGroup& group = add_group({3});
    groups_.end(group, Errc::rank_lost, "its rank was lost", false);
    groups_.forget(group);
    take_all();
  }
  EXPECT_EQ(lines.seen().size(), 128u);
  add_group({4});
  EXPECT_EQ(lines.seen().size(), 129u) << "another user has lines of its own";
  log_.tell_left_out();
  ASSERT_EQ(lines.seen().size(), 130u);
  EXPECT_EQ(lines.seen().back(), "872 more lines about groups were left out: uid 1001");
}

// The clock of a test stands still: a slice is over at once, or never.
TEST_F(GroupsTest, OfALostCoordinatorEndAsThereIsTimeFor) {
  std::vector<MemberGroup*> led{group_, &add_group({1}), &add_group({2})};
  for (MemberGroup* group : led) group->coordinator = 5;
  const auto ended = [&] {
    return std::count_if(led.begin(), led.end(),
                         [](const auto* group) { return group->has_ended(); });
  };
  groups_.lose_coordinator(5, "it broke");
  EXPECT_EQ(groups_.settle(TimeSlice(clock_, 0)), 1);
  EXPECT_EQ(ended(), 1);
  EXPECT_EQ(groups_.next_deadline_ns(), clock_.now_ns());
  EXPECT_EQ(groups_.settle(TimeSlice(clock_, kSecond)), 2);
  EXPECT_EQ(ended(), 3);
  EXPECT_EQ(groups_.settle(TimeSlice(clock_, kSecond)), 0);
  EXPECT_GT(groups_.next_deadline_ns(), clock_.now_ns());
}

TEST_F(GroupsTest, ThatAreLateToStartEndAsThereIsTimeFor) {
  add_group({1});
  add_group({2});
  clock_.advance_ns(kSecond);
  EXPECT_EQ(groups_.settle(TimeSlice(clock_, 0)), 1);
  EXPECT_LE(groups_.next_deadline_ns(), clock_.now_ns());
  EXPECT_EQ(groups_.settle(TimeSlice(clock_, kSecond)), 2);
}

}  // namespace
}  // namespace tern::daemon::conductor_test
