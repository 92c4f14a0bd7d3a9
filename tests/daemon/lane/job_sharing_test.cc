#include "daemon/lane/job_sharing.h"

#include <gtest/gtest.h>

#include <bit>
#include <memory>
#include <vector>

#include "plan/recv.h"
#include "tests/daemon/lane/lane_rig.h"

namespace tern::daemon::job_sharing_test {
namespace {

using lane_test::kSecond;

constexpr std::size_t kFlood = 1 << 20;

class JobSharingTest : public ::testing::Test {
 protected:
  explicit JobSharingTest(std::size_t port_bytes = 256 << 10) : sharing(0, port_bytes) {}

  // A group of the job of this number, with links of its own to the other node if there is one.
  LaneGroup& add_group(std::uint64_t job, std::uint32_t weight, std::uint32_t nodes = 2,
                       std::uint32_t account = 0) {
    GroupSetup setup = lane_test::group_of(nodes, job);
    setup.weight = weight;
    setup.account = account;
    owned_.push_back(std::make_unique<LaneGroup>(setup, EagerRoom()));
    LaneGroup& group = *owned_.back();
    group.attach(lanes.near.resources, lanes.near.links, sharing.job(setup.job));
    lanes.pump();
    groups.push_back(&group);
    return group;
  }
  // From now on the group has an op in flight.
  void begin_op(LaneGroup& group) {
    lane_test::submit(group.core().ops(), {0, next_use_++}, lane_test::all_reduce_of(1 << 20));
  }
  void flood(LaneGroup& group) { lane_test::TwoLanes::send(*group.core().peer(1).link, kFlood); }
  void round() {
    sharing.count(groups, now_ns);
    sharing.bind_links(groups, lanes.near.links, now_ns);
  }
  // For two seconds each link is busy and carries this.
  void carry_all(double bytes_per_s) {
    for (int look = 0; look < 100; ++look, now_ns += FanOut::kLookNs) {
      for (auto& one : lanes.transport.carriers) {
        one.rate.busy_ns += FanOut::kLookNs;
        one.rate.acked_bytes += static_cast<std::uint64_t>(bytes_per_s * FanOut::kLookNs / 1e9);
      }
      round();
    }
  }
  lane_test::Carrier& carrier(std::size_t link) { return lanes.transport.carriers[link]; }

  lane_test::TwoLanes lanes;
  std::uint64_t now_ns = 100 * kSecond;
  JobSharing sharing;
  std::vector<LaneGroup*> groups;

 private:
  std::vector<std::unique_ptr<LaneGroup>> owned_;
  std::uint64_t next_use_ = 0;
};

TEST_F(JobSharingTest, GroupsOfOneJobShareIt) {
  LaneJob& job = sharing.job(7);
  sharing.job(8);
  EXPECT_EQ(&sharing.job(7), &job);
  EXPECT_EQ(sharing.jobs(), 2u);
}

TEST_F(JobSharingTest, AJobIsForgottenWithoutAGroupAndAFrame) {
  LaneGroup& group = add_group(7, 1, 1);
  sharing.settle();
  EXPECT_EQ(sharing.jobs(), 1u);
  LaneJob& job = sharing.job(7);
  const Cookie cookie = lanes.near.resources.memory.reserve(job, wire::Leg::reduce);
  group.core().detach();
  sharing.settle();
  EXPECT_EQ(sharing.jobs(), 1u) << "a frame of it is in flight";
  lanes.near.resources.memory.withdraw(cookie);
  sharing.settle();
  EXPECT_EQ(sharing.jobs(), 0u);
}

TEST_F(JobSharingTest, AJobWithAnOpInFlightIsActive) {
  LaneGroup& first = add_group(1, 3);
  add_group(2, 1);
  LaneGroup& alone = add_group(3, 2, 1);
  round();
  EXPECT_EQ(sharing.load().active, 0u);
  begin_op(first);
  begin_op(alone);
  round();
  EXPECT_EQ(sharing.load().active, 2u);
  EXPECT_DOUBLE_EQ(sharing.load().part(sharing.job(1)), 0.6);
  EXPECT_EQ(sharing.load().wire_jobs, std::uint64_t{1} << 1) << "one of one node sends nothing";
}

// Of one that only sends and receives there is no op.
TEST_F(JobSharingTest, AJobWithASendInFlightIsActive) {
  lane_test::TestClient client(1);
  lanes.near.resources.clients.add(client.memory);
  LaneGroup& group = add_group(1, 1);
  round();
  EXPECT_EQ(sharing.load().active, 0u);
  shm::SubmitEntry entry{};
  entry.kind = plan::kRecv.number;
  entry.dtype = static_cast<std::uint8_t>(DType::u8);
  entry.root = 1;
  entry.prescale_bits = entry.state_scale_bits = std::bit_cast<std::uint32_t>(1.0f);
  entry.count = 8;
  group.submit(*lanes.near.resources.clients.find(1), entry);
  EXPECT_FALSE(client.next_completion().has_value());
  round();
  EXPECT_EQ(sharing.load().active, 1u);
}

TEST_F(JobSharingTest, AFloodIsBoundedWhileAnotherJobIsActive) {
  LaneGroup& heavy = add_group(1, 1);
  LaneGroup& light = add_group(2, 1);
  begin_op(heavy);
  flood(heavy);
  round();
  EXPECT_EQ(carrier(0).bounds, 0) << "alone it may fill its links";
  begin_op(light);
  round();
  EXPECT_GT(carrier(0).bound.value_or(0), 0u);
  EXPECT_EQ(carrier(1).bound.value_or(0), 0u) << "nobody waits for a job of small ops";
}

TEST_F(JobSharingTest, AHeavierJobMayLeaveMoreInTheKernel) {
  LaneGroup& heavier = add_group(1, 3);
  LaneGroup& lighter = add_group(2, 1);
  for (LaneGroup* group : {&heavier, &lighter}) {
    begin_op(*group);
    flood(*group);
  }
  round();
  EXPECT_GT(carrier(1).bound.value_or(0), 0u);
  EXPECT_EQ(carrier(0).bound.value_or(0), 3 * carrier(1).bound.value_or(0));
}

TEST_F(JobSharingTest, AUserWithManyJobsMayLeaveNoMoreInTheKernel) {
  constexpr std::size_t kJobs = 4;
  for (std::uint64_t job = 0; job < kJobs; ++job) add_group(job, 1);
  add_group(kJobs, 1, 2, 1000);
  for (LaneGroup* group : groups) {
    begin_op(*group);
    flood(*group);
  }
  round();
  EXPECT_GT(carrier(0).bound.value_or(0), 0u);
  std::size_t together = 0;
  for (std::size_t link = 0; link < kJobs; ++link) together += *carrier(link).bound;
  EXPECT_EQ(together, *carrier(kJobs).bound);
}

// As of the beginning of a round.
TEST_F(JobSharingTest, WhatAUsersJobsHoldTogetherIsKnown) {
  LaneGroup& first = add_group(1, 1);
  LaneGroup& second = add_group(2, 1);
  sharing.job(1).held.receive_slabs = 3;
  round();
  EXPECT_EQ(second.core().job().held_beside.receive_slabs, 3u);
  LaneGroup& of_another = add_group(3, 1, 2, 1000);
  round();
  EXPECT_EQ(second.core().job().held_beside.receive_slabs, 3u);
  EXPECT_EQ(first.core().job().held_beside, LaneJob::Held{});
  EXPECT_EQ(of_another.core().job().held_beside, LaneJob::Held{});
  sharing.job(1).held = {};
  of_another.core().detach();
  sharing.settle();
  round();
  EXPECT_EQ(second.core().job().held_beside, LaneJob::Held{});
}

TEST_F(JobSharingTest, BoundsAreLookedAtNowAndThen) {
  LaneGroup& first = add_group(1, 1);
  LaneGroup& second = add_group(2, 1);
  begin_op(first);
  begin_op(second);
  flood(first);
  round();
  now_ns += LaneShare::kLookNs - 1;
  round();
  EXPECT_EQ(carrier(0).bounds, 1);
  now_ns += 1;
  round();
  EXPECT_EQ(carrier(0).bounds, 2);
}

TEST_F(JobSharingTest, LinksAreFreeAgainWhenTheOthersRest) {
  LaneGroup& first = add_group(1, 1);
  LaneGroup& second = add_group(2, 1);
  begin_op(first);
  begin_op(second);
  flood(first);
  round();
  ASSERT_GT(carrier(0).bound.value_or(0), 0u);
  second.end(Errc::group_left, "ended");
  while (second.core().ops().table().live() > 0) {
    second.core().ops().release(
        lane_test::run_until(second.core().ops(), collective::ActionKind::complete).op);
  }
  now_ns += LaneLoad::kActiveNs + 1;
  round();
  EXPECT_EQ(carrier(0).bound, 0u);
  const int bounds = carrier(0).bounds;
  round();
  EXPECT_EQ(carrier(0).bounds, bounds) << "once is enough";
}

// A job that is alone, to two other nodes, one of which has not come yet.
TEST_F(JobSharingTest, LinksToSeveralNodesTakeTurnsInSmallPieces) {
  begin_op(add_group(1, 1, 3));
  round();
  EXPECT_EQ(carrier(0).bound, FanOut::kMiddleBound.bytes) << "nothing is known of them";
  carry_all(6e6);
  EXPECT_EQ(carrier(0).bound, FanOut::kSlowBound.bytes);
  EXPECT_EQ(carrier(0).record_bytes, FanOut::kSlowBound.record_bytes);
  carry_all(60e6);
  EXPECT_EQ(carrier(0).bound, FanOut::kMiddleBound.bytes);
  carry_all(2e9);
  EXPECT_EQ(carrier(0).bound, 0u);
  const int bounds = carrier(0).bounds;
  carry_all(2e9);
  EXPECT_EQ(carrier(0).bounds, bounds) << "once is enough";
}

class SmallPorts : public JobSharingTest {
 protected:
  static constexpr std::size_t kPort = 16 << 10;
  SmallPorts() : JobSharingTest(kPort) {}
};

TEST_F(SmallPorts, AreNotFilledByJobsTogether) {
  for (const std::uint64_t job : {1u, 2u}) add_group(job, 1, 3);
  for (LaneGroup* group : groups) {
    begin_op(*group);
    flood(*group);
  }
  round();
  ASSERT_FALSE(LaneShare::is_light(sharing.job(1).backlog));
  const std::size_t links = lanes.near.links.all().size();
  EXPECT_EQ(carrier(0).bound, FanOut(kPort).bound(links, 0).bytes);
  EXPECT_EQ(carrier(0).record_bytes, FanOut(kPort).bound(links, 0).record_bytes);
}

// One that was opened while others filled the path has never seen it empty.
TEST_F(JobSharingTest, ALinkGoesByTheShortestRoundTripToItsNode) {
  LaneGroup& heavy = add_group(1, 1);
  LaneGroup& light = add_group(2, 1);
  begin_op(heavy);
  begin_op(light);
  for (int look = 0; look < 100; ++look, now_ns += LaneShare::kLookNs) {
    flood(heavy);
    lanes.pump();
    round();
  }
  flood(heavy);
  const auto bound_of_heavy = [&](std::uint64_t own_ns, std::uint64_t others_ns) {
    carrier(0).rate.round_trip_ns = own_ns;
    carrier(1).rate.round_trip_ns = others_ns;
    now_ns += LaneShare::kLookNs;
    round();
    return carrier(0).bound.value_or(0);
  };
  const auto slow = bound_of_heavy(20'000'000, 0);
  const auto by_the_other = bound_of_heavy(20'000'000, 200'000);
  EXPECT_LT(by_the_other, slow);
  EXPECT_EQ(bound_of_heavy(200'000, 20'000'000), by_the_other);
}

// By its own round trip, whatever that of the others is.
TEST_F(JobSharingTest, ALinkToAFarNodeHasWhatItsPathHolds) {
  begin_op(add_group(1, 1, 3));
  add_group(2, 1, 3);  // of a job that rests
  carrier(0).rate.round_trip_ns = 20'000'000;
  carry_all(60e6);
  const auto links = static_cast<double>(lanes.near.links.all().size());
  EXPECT_NEAR(static_cast<double>(carrier(0).bound.value_or(0)), 2 * 120e6 * 0.02 / links, 1e4);
  EXPECT_EQ(carrier(2).bound, FanOut(256 << 10).bound(lanes.near.links.all().size(), 0).bytes)
      << "the other job's is near";
}

// Whichever of its counts is larger than that of the one before it.
TEST_F(JobSharingTest, AConnectionThatIsNewCountsFromZero) {
  begin_op(add_group(1, 1, 3));
  carry_all(60e6);
  ASSERT_EQ(carrier(0).bound, FanOut::kMiddleBound.bytes);
  carrier(0).rate = {};
  carry_all(60e6);
  EXPECT_EQ(carrier(0).bound, FanOut::kMiddleBound.bytes);
  carrier(0).rate.busy_ns = 0;
  carry_all(60e6);
  EXPECT_EQ(carrier(0).bound, FanOut::kMiddleBound.bytes);
}

TEST_F(JobSharingTest, LinksToOneNodeHaveNoBound) {
  begin_op(add_group(1, 1));
  add_group(1, 1);
  carry_all(6e6);
  EXPECT_EQ(carrier(0).bounds, 0);
}

TEST_F(JobSharingTest, AJobOnAnotherLaneSharesTheNode) {
  ActiveJobs jobs;
  sharing.share(jobs);
  LaneGroup& group = add_group(1, 1);
  begin_op(group);
  flood(group);
  round();
  EXPECT_EQ(carrier(0).bounds, 0);
  jobs.publish(1, std::uint64_t{1} << 9);
  round();
  EXPECT_GT(carrier(0).bound.value_or(0), 0u);
}

}  // namespace
}  // namespace tern::daemon::job_sharing_test
