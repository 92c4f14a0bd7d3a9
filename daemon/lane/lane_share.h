#pragma once

// What a lane's links may leave in the kernel while several jobs are active on the node. All that a
// flood has there beyond what keeps its path busy only waits in the queue of the interface, and
// what another job sends waits behind it. In such a queue links share the path as they share its
// places, so that here weights act on a link too.

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace tern::daemon {

class LaneShare {
 public:
  static constexpr std::uint64_t kLookNs = 20'000'000;
  // Acks come in lumps of half a mebibyte, which are much of what a shorter time carries.
  static constexpr std::uint64_t kRateNs = 100'000'000;
  static constexpr double kQueueSeconds = 0.00025;
  // Less of one link would cost more in wake-ups than it spares others in waiting.
  static constexpr double kLeastBytes = 16 << 10;
  // A job with no more than this under way on all its links of a lane, as one of small ops, is
  // not what others wait for: its links have no bound, or it would send its own op in pieces. Of
  // ops of 64 KiB back to back two are under way at times: the acks of one come with the next.
  static constexpr std::uint64_t kLightBytes = 160 << 10;
  // A bound that slows the links must not make the next one: what they carried at their fastest is
  // forgotten by half in about a second and a half.
  static constexpr double kMemory = 0.95;

  static bool is_light(std::uint64_t backlog) noexcept { return backlog <= kLightBytes; }
  // Of what a job had under way at looks before, and has now. A look may come between two of its
  // ops, or while it computes: mebibytes are forgotten in about a second, which is how long a job
  // counts as active.
  static std::uint64_t backlog(std::uint64_t before, std::uint64_t now) noexcept {
    return std::max(now, before - before / 16);
  }

  bool due(std::uint64_t now_ns) const noexcept { return now_ns - looked_ns_ >= kLookNs; }

  // `acked_bytes`: of all links, since ever.
  void look(std::uint64_t acked_bytes, std::uint64_t now_ns) noexcept {
    looked_ns_ = now_ns;
    const std::uint64_t ns = now_ns - rated_ns_;
    const bool lost_links = acked_bytes < acked_bytes_;
    if (rated_ns_ != 0 && ns < kRateNs && !lost_links) return;
    // After a pause, or when a link is gone, this is only where the next interval begins.
    const bool known = rated_ns_ != 0 && ns <= 2 * kRateNs && !lost_links;
    const double now =
        known ? static_cast<double>(acked_bytes - acked_bytes_) * 1e9 / static_cast<double>(ns)
              : 0.0;
    bytes_per_s_ = std::max(now, bytes_per_s_ * kMemory);
    acked_bytes_ = acked_bytes;
    rated_ns_ = now_ns;
  }

  // A job's of all active ones, by weight.
  struct Parts {
    double of_queue = 1.0;
    double least_of_queue = 1.0;  // the smallest that a job has
    double of_path = 1.0;         // of those that fill it now
  };

  // Of one of a job's `links`.
  std::size_t bound(const Parts& parts, std::uint32_t links,
                    std::uint64_t round_trip_ns) const noexcept {
    const double path = bytes_per_s_ * static_cast<double>(round_trip_ns) / 1e9;
    const double queue = std::max(bytes_per_s_ * kQueueSeconds, kLeastBytes / parts.least_of_queue);
    const double bytes = (parts.of_path * path + parts.of_queue * queue) / std::max(links, 1u);
    return static_cast<std::size_t>(std::max(bytes, kLeastBytes));
  }

 private:
  std::uint64_t looked_ns_ = 0;
  std::uint64_t rated_ns_ = 0;  // the beginning of the interval, and what was acked then
  std::uint64_t acked_bytes_ = 0;
  double bytes_per_s_ = 0.0;
};

}  // namespace tern::daemon
