#pragma once

// What encoding takes a program that does it in place of the daemon, before each op.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "tuner/candidate.h"

namespace tern::tuner {

// Of one tensor's ops, by candidate. Raw blocks take time too. A candidate counts from its second
// op on, and by the shorter of its last two: a program that loses its processor once is not slow.
// How much longer than raw it takes fades, so that it is tried again.
class ClientCoding {
 public:
  // Of an op: a lane would encode the same in `lane_ns`.
  void observe(CandidateIndex candidate, double ns, double lane_ns) noexcept {
    ++ops_;
    Seen& seen = seen_[candidate];
    seen = {ops_, ns, seen.newest_ns, std::min(seen.count + 1, 2u)};
    if (candidate == kRaw || !seen.is_known() || lane_ns <= 0.0) return;
    beside_lane_ = {ops_, std::max(0.0, seen.ns() - seen_[kRaw].ns()) / lane_ns};
  }

  // For the next op. What is not known yet takes as much longer or shorter than on a lane as what
  // was seen last. Before any is known nothing takes longer than raw: a lane's speed says nothing
  // of a GPU's, and two ops show the program's.
  double ns(CandidateIndex candidate, double lane_ns) const noexcept {
    const double raw = seen_[kRaw].ns();
    const Seen& seen = seen_[candidate];
    if (candidate == kRaw) return raw;
    if (!seen.is_known()) return raw + beside_lane_.ratio * lane_ns * freshness(beside_lane_.op);
    return raw + (seen.ns() - raw) * freshness(seen.op);
  }

 private:
  static constexpr double kHalfLife = 1024.0;  // ops

  double freshness(std::uint64_t op) const noexcept {
    return std::exp2(-static_cast<double>(ops_ - op) / kHalfLife);
  }

  struct Seen {
    std::uint64_t op = 0;
    double newest_ns = 0.0;
    double before_ns = 0.0;
    std::uint32_t count = 0;  // up to 2

    bool is_known() const noexcept { return count == 2; }
    double ns() const noexcept { return std::min(newest_ns, before_ns); }
  };
  struct Ratio {
    std::uint64_t op = 0;
    double ratio = 0.0;
  };

  std::uint64_t ops_ = 0;
  std::array<Seen, kMaxCandidates> seen_{};
  Ratio beside_lane_;
};

}  // namespace tern::tuner
