#include "daemon/lane/lane_job.h"

#include <gtest/gtest.h>

#include <vector>

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

TEST(ActiveJobs, AreSeenOfAllLanesWhicheverSpeaksFirst) {
  ActiveJobs jobs;
  jobs.publish(15, 2);
  jobs.publish(0, 1);
  EXPECT_TRUE(jobs.several());
}

}  // namespace
}  // namespace tern::daemon
