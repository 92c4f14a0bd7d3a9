#include "daemon/lane/lane_job.h"

#include <gtest/gtest.h>

#include <vector>

#include "daemon/lane/lane_share.h"

namespace tern::daemon {
namespace {

constexpr std::uint64_t kNow = 100'000'000'000;

LaneJob job_of(std::uint32_t weight, std::uint64_t idle_ns = 0) {
  LaneJob job;
  job.weight = weight;
  job.busy_ns = kNow - idle_ns;
  return job;
}

LaneLoad load_of(const std::vector<LaneJob>& jobs) {
  LaneLoad load;
  for (const LaneJob& job : jobs) load.count(job, kNow);
  return load;
}

TEST(LaneLoad, AJobAloneHasAll) {
  const std::vector<LaneJob> jobs = {job_of(7)};
  EXPECT_EQ(load_of(jobs).share(jobs[0], 64, 1, 1), 64u);
  EXPECT_EQ(load_of(jobs).turn(jobs[0], 4), 4);
}

TEST(LaneLoad, ActiveJobsShareByWeight) {
  const std::vector<LaneJob> jobs = {job_of(3), job_of(1)};
  const LaneLoad load = load_of(jobs);
  EXPECT_EQ(load.share(jobs[0], 64, 1, 2), 48u);
  EXPECT_EQ(load.share(jobs[1], 64, 1, 2), 16u);
  EXPECT_EQ(load.turn(jobs[0], 4), 3);
  EXPECT_EQ(load.turn(jobs[1], 4), 1);
}

TEST(LaneLoad, ATurnHasABound) {
  const std::vector<LaneJob> jobs = {job_of(100), job_of(1)};
  EXPECT_EQ(load_of(jobs).turn(jobs[0], 4), 4);
}

TEST(LaneLoad, WhoWasNotCountedHasATurnAllTheSame) {
  const std::vector<LaneJob> jobs = {job_of(5), job_of(5)};
  EXPECT_EQ(load_of(jobs).turn(job_of(1, LaneLoad::kActiveNs + 1), 4), 1);
}

TEST(LaneLoad, AShareIsNeverTooSmallToGetOn) {
  const std::vector<LaneJob> jobs = {job_of(1), job_of(100)};
  EXPECT_EQ(load_of(jobs).share(jobs[0], 64, 15, 2), 15u);
}

TEST(LaneLoad, UsersShareBeforeTheirJobsDo) {
  std::vector<LaneJob> jobs(4, job_of(1));
  jobs[3].account = 1000;
  LaneLoad load = load_of(jobs);
  load.several_accounts = true;
  EXPECT_EQ(load.share(jobs[0], 60, 1, 4), 10u);
  EXPECT_EQ(load.share(jobs[3], 60, 1, 4), 30u);
  EXPECT_EQ(load.share_of_user(jobs[0], 60, 1), 30u);
  EXPECT_EQ(load.share_of_user(jobs[3], 60, 1), 30u);
  EXPECT_DOUBLE_EQ(load.part(jobs[0]), 1.0 / 6);
  EXPECT_DOUBLE_EQ(load.part(jobs[3]), 0.5);
}

TEST(LaneLoad, AUserWeighsAsMuchAsTheHeaviestOfHisJobs) {
  std::vector<LaneJob> jobs = {job_of(3), job_of(1), job_of(1)};
  jobs[2].account = 1000;
  LaneLoad load = load_of(jobs);
  load.several_accounts = true;
  EXPECT_EQ(load.share_of_user(jobs[0], 64, 1), 48u);
  EXPECT_EQ(load.share(jobs[0], 64, 1, 3), 36u);
  EXPECT_EQ(load.share(jobs[1], 64, 1, 3), 12u);
  EXPECT_EQ(load.share(jobs[2], 64, 1, 3), 16u);
}

TEST(LaneLoad, UsersOfWhomOneIsActiveKeepRoomForTheOthers) {
  std::vector<LaneJob> jobs = {job_of(1), job_of(1), job_of(1, LaneLoad::kActiveNs + 1)};
  jobs[2].account = 1000;
  LaneLoad load = load_of(jobs);
  EXPECT_EQ(load.share_of_user(jobs[0], 64, 1), 64u) << "the idle one is his own";
  load.several_accounts = true;
  EXPECT_EQ(load.share_of_user(jobs[0], 64, 1), 56u);
  EXPECT_EQ(load.share(jobs[0], 64, 1, 3), 32u);
}

TEST(LaneLoad, IsClearedForTheNextRound) {
  std::vector<LaneJob> jobs = {job_of(3), job_of(1)};
  jobs[1].account = 1000;
  LaneLoad load = load_of(jobs);
  load.clear();
  EXPECT_EQ(load.active, 0u);
  EXPECT_FALSE(load.several_users());
  load.count(jobs[1], kNow);
  load.count(job_of(1), kNow);
  EXPECT_EQ(load.share(jobs[1], 64, 1, 2), 32u);
}

TEST(LaneLoad, WhoWasIdleForLongHasNoShareButARoomIsKept) {
  const std::vector<LaneJob> jobs = {job_of(1), job_of(1, LaneLoad::kActiveNs + 1)};
  EXPECT_EQ(load_of(jobs).share(jobs[0], 64, 1, 2), 56u);
  EXPECT_EQ(load_of(jobs).turn(jobs[0], 4), 4);
}

TEST(LaneLoad, WhoWasBusyJustNowStillCounts) {
  const std::vector<LaneJob> jobs = {job_of(1), job_of(1, LaneLoad::kActiveNs)};
  EXPECT_EQ(load_of(jobs).share(jobs[0], 64, 1, 2), 32u);
}

TEST(LaneLoad, KnowsWhetherItsJobsAreOfSeveralUsers) {
  LaneJob first = job_of(1), second = job_of(1), of_another = job_of(1);
  first.account = second.account = 1000;
  of_another.account = 1001;
  EXPECT_FALSE(load_of({first, second}).several_users());
  EXPECT_TRUE(load_of({first, second, of_another}).several_users());
  of_another.busy_ns = kNow - LaneLoad::kActiveNs - 1;
  EXPECT_FALSE(load_of({first, second, of_another}).several_users());
}

// ---- ActiveJobs

TEST(LaneLoad, KnowsTheJobsThatAreActiveWithOtherNodes) {
  LaneJob near = job_of(1), far = job_of(1), rested = job_of(1);
  near.key = 3;
  far.key = 64 + 5;
  far.wire_ns = kNow;
  rested.key = 6;
  rested.wire_ns = kNow - LaneLoad::kActiveNs - 1;
  EXPECT_EQ(load_of({near, far, rested}).wire_jobs, std::uint64_t{1} << 5);
}

TEST(ActiveJobs, TwoOnDifferentLanesShareTheNode) {
  ActiveJobs jobs;
  EXPECT_FALSE(jobs.several());
  jobs.publish(0, 1);
  jobs.publish(1, 1);
  EXPECT_FALSE(jobs.several());
  jobs.publish(15, 2);
  EXPECT_TRUE(jobs.several());
  jobs.publish(15, 0);
  EXPECT_FALSE(jobs.several());
}

// ---- LaneShare

constexpr auto kLeast = static_cast<std::size_t>(LaneShare::kLeastBytes);

// 100 MB/s over links of 0.1 ms.
LaneShare share_of_a_full_lane() {
  LaneShare share;
  for (std::uint64_t look = 0; look < 20; ++look) {
    share.look(look * 2'000'000, kNow + look * LaneShare::kLookNs);
  }
  return share;
}

TEST(LaneShare, KeepsThePathBusyAndAQuarterOfAMillisecondWaiting) {
  EXPECT_EQ(share_of_a_full_lane().bound({1.0, 1.0, 1.0}, 1, 100'000), 10'000u + 25'000u);
}

TEST(LaneShare, DividesByWeightSoThatTheLightestHasEnough) {
  const LaneShare share = share_of_a_full_lane();
  EXPECT_EQ(share.bound({0.25, 0.25, 1.0}, 1, 0), kLeast);
  EXPECT_EQ(share.bound({0.75, 0.25, 1.0}, 1, 0), 3 * kLeast);
}

TEST(LaneShare, DividesThePathAmongThoseThatFillIt) {
  const LaneShare share = share_of_a_full_lane();
  EXPECT_EQ(share.bound({0.75, 0.25, 1.0}, 1, 1'000'000), 100'000u + 3 * kLeast);
  EXPECT_EQ(share.bound({0.75, 0.25, 0.75}, 1, 1'000'000), 75'000u + 3 * kLeast);
  EXPECT_EQ(share.bound({0.25, 0.25, 0.25}, 1, 1'000'000), 25'000u + kLeast);
}

TEST(LaneShare, ALinkOfManyHasEnoughToo) {
  EXPECT_EQ(share_of_a_full_lane().bound({0.5, 0.5, 1.0}, 15, 100'000), kLeast);
}

TEST(LaneShare, RemembersTheFastestForAWhile) {
  LaneShare share = share_of_a_full_lane();
  const std::size_t full = share.bound({1.0, 1.0, 1.0}, 1, 1'000'000);
  std::uint64_t now = kNow + 19 * LaneShare::kLookNs;
  const auto look_at_nothing = [&](int times) {
    for (int i = 0; i < times; ++i) share.look(38'000'000, now += LaneShare::kLookNs);
  };
  look_at_nothing(1);
  EXPECT_GT(share.bound({1.0, 1.0, 1.0}, 1, 1'000'000), full * 9 / 10);
  look_at_nothing(1000);
  EXPECT_LT(share.bound({1.0, 1.0, 1.0}, 1, 1'000'000), kLeast + 1000);
}

TEST(LaneShare, AJobIsLightWhenItHasHadLittleUnderWayForAWhile) {
  EXPECT_TRUE(LaneShare::is_light(128 << 10));  // two ops of 64 KiB
  EXPECT_FALSE(LaneShare::is_light(256 << 10));
  // Bursts of 4 MiB with 0.4 s between them are a flood all the time.
  std::uint64_t backlog = 0;
  for (int look = 0; look < 200; ++look) {
    backlog = LaneShare::backlog(backlog, look % 21 == 0 ? 4 << 20 : 0);
    EXPECT_FALSE(LaneShare::is_light(backlog)) << look;
  }
  std::uint64_t looks = 0;
  for (; !LaneShare::is_light(backlog); ++looks) backlog = LaneShare::backlog(backlog, 30'000);
  EXPECT_GT(looks * LaneShare::kLookNs, 500'000'000u);
  EXPECT_LT(looks * LaneShare::kLookNs, 2'000'000'000u);
}

TEST(LaneShare, ALumpOfAcksIsNoRate) {
  LaneShare share;
  std::uint64_t acked = 0;
  // 2.5 MB in every fifth look and nothing between: 25 MB/s.
  for (std::uint64_t look = 0; look < 50; ++look) {
    if (look % 5 == 4) acked += 2'500'000;
    share.look(acked, kNow + look * LaneShare::kLookNs);
  }
  EXPECT_EQ(share.bound({1.0, 1.0, 1.0}, 1, 10'000'000), 250'000u + kLeast);
}

TEST(LaneShare, APauseIsNoRate) {
  LaneShare share;
  share.look(0, kNow);
  share.look(1'000'000'000, kNow + 1'000'000'000);
  EXPECT_EQ(share.bound({1.0, 1.0, 1.0}, 1, 100'000), kLeast);
}

}  // namespace
}  // namespace tern::daemon
