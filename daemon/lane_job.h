#pragma once

// Jobs that use one lane share it: while more than one is active, each has its part of the slabs
// and of the codec's time, by weight. A job that floods waits for its own slabs; its frames, on
// links of its own, queue behind nobody else's.

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace tern::daemon {

// What one job has of a lane. Used by its groups, until the last of its frames is acknowledged.
struct LaneJob {
  std::uint64_t key = 0;  // of the job on this node
  std::uint32_t weight = 1;
  std::uint32_t groups = 0;
  std::uint64_t busy_ns = 0;  // when it last had an op in flight

  struct Held {
    std::uint32_t accumulators = 0, receive_slabs = 0, contributions = 0, results = 0;
    bool operator==(const Held&) const = default;
  };
  Held held;
};

// How many jobs are active on a lane, as of the beginning of the round.
struct LaneLoad {
  // What is submitted after a pause no longer than this finds its share free.
  static constexpr std::uint64_t kActiveNs = 1'000'000'000;
  // While others have groups and send nothing, this part is kept free for their first op.
  static constexpr std::uint32_t kReservedPart = 8;

  std::uint32_t active = 0;  // jobs
  std::uint32_t weight = 0;  // of all of them
  std::uint32_t least_weight = 1;

  void count(const LaneJob& job, std::uint64_t now_ns) noexcept {
    if (job.busy_ns == 0 || now_ns - job.busy_ns > kActiveNs) return;
    least_weight = active == 0 ? job.weight : std::min(least_weight, job.weight);
    ++active;
    weight += job.weight;
  }

  // How many of `count` the job may hold, of which it needs `least` to get on. REQUIRES: the job
  // has been counted as active.
  std::uint32_t share(const LaneJob& job, std::uint32_t count, std::uint32_t least,
                      std::size_t jobs) const noexcept {
    if (jobs <= 1) return count;
    const std::uint64_t part =
        active > 1 ? std::uint64_t{count} * job.weight / weight : count - count / kReservedPart;
    return std::max(static_cast<std::uint32_t>(part), least);
  }

  // Actions of a group in one round of `most`: at least one, also for a job lighter than all that
  // have been counted.
  int turn(const LaneJob& job, int most) const noexcept {
    if (active <= 1) return most;
    return std::clamp(static_cast<int>(job.weight / least_weight), 1, most);
  }
};

}  // namespace tern::daemon
