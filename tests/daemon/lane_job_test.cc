#include "daemon/lane_job.h"

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

TEST(LaneLoad, WhoWasIdleForLongHasNoShareButARoomIsKept) {
  const std::vector<LaneJob> jobs = {job_of(1), job_of(1, LaneLoad::kActiveNs + 1)};
  EXPECT_EQ(load_of(jobs).share(jobs[0], 64, 1, 2), 56u);
  EXPECT_EQ(load_of(jobs).turn(jobs[0], 4), 4);
}

TEST(LaneLoad, WhoWasBusyJustNowStillCounts) {
  const std::vector<LaneJob> jobs = {job_of(1), job_of(1, LaneLoad::kActiveNs)};
  EXPECT_EQ(load_of(jobs).share(jobs[0], 64, 1, 2), 32u);
}

}  // namespace
}  // namespace tern::daemon
