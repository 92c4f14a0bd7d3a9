#pragma once

// Jobs that use one lane share it: while more than one is active, each has its part of the slabs
// and of the codec's time, by weight, and the jobs of one user have together no more than his part
// (UserWeights). A job that floods waits for its own slabs; its frames, on links of its own, queue
// behind nobody else's.

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "daemon/lane/user_weights.h"
#include "shm/layout.h"

namespace tern::daemon {

// What one job has of a lane. Used by its groups, until the last of its frames is acknowledged.
struct LaneJob {
  std::uint64_t key = 0;      // of the job on this node
  std::uint32_t account = 0;  // whose it is
  std::uint32_t weight = 1;
  std::uint32_t groups = 0;
  std::uint32_t links = 0;      // at the last look at what links share
  std::uint64_t under_way = 0;  // bytes on its links, at that look
  std::uint64_t backlog = 0;    // bytes under way on its links, recently
  std::uint64_t busy_ns = 0;    // when it last had an op, send or recv in flight
  std::uint64_t wire_ns = 0;    // and one with other nodes

  struct Held {
    std::uint32_t accumulators = 0, receive_slabs = 0, contributions = 0, results = 0;
    bool operator==(const Held&) const = default;
    Held& operator+=(const Held& other) noexcept {
      accumulators += other.accumulators;
      receive_slabs += other.receive_slabs;
      contributions += other.contributions;
      results += other.results;
      return *this;
    }
    Held& operator-=(const Held& other) noexcept {
      accumulators -= other.accumulators;
      receive_slabs -= other.receive_slabs;
      contributions -= other.contributions;
      results -= other.results;
      return *this;
    }
  };
  Held held;
  Held held_beside;  // by its user's other jobs, as of the beginning of the round

  UserWeights::Job weighed() const noexcept { return {account, weight}; }
};

// How many jobs are active on a lane, as of the beginning of the round.
struct LaneLoad {
  // What is submitted after a pause no longer than this finds its share free.
  static constexpr std::uint64_t kActiveNs = 1'000'000'000;
  // While others have groups and send nothing, this part is kept free for their first op.
  static constexpr std::uint32_t kReservedPart = 8;

  std::uint32_t active = 0;  // jobs
  std::uint32_t least_weight = 1;
  std::uint64_t wire_jobs = 0;    // those active with other nodes, for ActiveJobs
  bool several_accounts = false;  // users who have jobs here, active or not
  UserWeights weights;            // of active jobs

  void clear() noexcept {
    active = 0;
    least_weight = 1;
    wire_jobs = 0;
    several_accounts = false;
    weights.clear();
  }

  static bool is_active(const LaneJob& job, std::uint64_t now_ns) noexcept {
    return job.busy_ns != 0 && now_ns - job.busy_ns <= kActiveNs;
  }
  void count(const LaneJob& job, std::uint64_t now_ns) noexcept {
    if (!is_active(job, now_ns)) return;
    least_weight = active == 0 ? job.weight : std::min(least_weight, job.weight);
    ++active;
    weights.add(job.weighed());
    if (job.wire_ns != 0 && now_ns - job.wire_ns <= kActiveNs) {
      wire_jobs |= std::uint64_t{1} << (job.key % 64);
    }
  }

  // How many of `count` the job may hold, of which it needs `least` to get on. REQUIRES: the job
  // has been counted as active.
  std::uint32_t share(const LaneJob& job, std::uint32_t count, std::uint32_t least,
                      std::size_t jobs) const noexcept {
    if (jobs <= 1) return count;
    const std::uint64_t part = active > 1 ? weights.part_of(std::uint64_t{count}, job.weighed())
                                          : count - count / kReservedPart;
    return std::max(static_cast<std::uint32_t>(part), least);
  }
  // How many all jobs of its user may hold together.
  std::uint32_t share_of_user(const LaneJob& job, std::uint32_t count,
                              std::uint32_t least) const noexcept {
    if (!several_accounts) return count;
    const std::uint64_t part = several_users()
                                   ? weights.part_of_user(std::uint64_t{count}, job.account)
                                   : count - count / kReservedPart;
    return std::max(static_cast<std::uint32_t>(part), least);
  }

  bool several_users() const noexcept { return weights.several_users(); }

  // Of what active jobs share.
  double part(const LaneJob& job) const noexcept {
    return active <= 1 ? 1.0 : weights.part_of(1.0, job.weighed());
  }

  // Actions of a group in one round of `most`: at least one, also for a job lighter than all that
  // have been counted.
  int turn(const LaneJob& job, int most) const noexcept {
    if (active <= 1) return most;
    return std::clamp(static_cast<int>(job.weight / least_weight), 1, most);
  }
};

// Which jobs are active on any lane of this node: two that never meet on a lane share the link.
class ActiveJobs {
 public:
  // A bit for each job; two jobs may have the same, and then are taken for one.
  void publish(std::uint32_t lane, std::uint64_t jobs) noexcept {
    std::atomic<std::uint64_t>& mine = lanes_[lane].jobs;
    if (mine.load(std::memory_order_relaxed) == jobs) return;
    mine.store(jobs, std::memory_order_relaxed);
    std::uint32_t used = used_.load(std::memory_order_relaxed);
    while (used <= lane &&
           !used_.compare_exchange_weak(used, lane + 1, std::memory_order_relaxed)) {
    }
  }
  bool several() const noexcept {
    std::uint64_t all = 0;
    const std::uint32_t used = used_.load(std::memory_order_relaxed);
    for (std::uint32_t i = 0; i < used; ++i) all |= lanes_[i].jobs.load(std::memory_order_relaxed);
    return has_several_bits(all);
  }

 private:
  struct alignas(64) Slot {
    std::atomic<std::uint64_t> jobs{0};
  };
  std::array<Slot, shm::kMaxLanes> lanes_;
  // Lanes with higher numbers have never had a job. Each asks in every round, and each slot is a
  // cache line.
  std::atomic<std::uint32_t> used_{0};
};

}  // namespace tern::daemon
