#pragma once

// How far a peer's clock is ahead of ours, from its acknowledgements. Each says when the peer wrote
// it, which was after it had the frame that we sent and before we had its answer:
//
//     written - arrived_here <= offset <= written - sent_here
//
// Every answer narrows the interval. Clocks drift apart, so that it widens with time, as fast as
// two real ones may; half its width is the error.

#include <algorithm>
#include <cstdint>

namespace tern::net {

class ClockOffset {
 public:
  // The peer's clock is `ns` ahead (negative: behind), give or take error_ns.
  struct Estimate {
    bool known = false;
    std::int64_t ns = 0;
    std::uint64_t error_ns = 0;
  };

  // sent_ns 0: when the acknowledged frame was sent is not known.
  void note(std::uint64_t sent_ns, std::uint64_t written_ns, std::uint64_t now_ns) noexcept {
    widen(now_ns);
    const std::int64_t low = difference(written_ns, now_ns);
    const std::int64_t high = sent_ns != 0 ? difference(written_ns, sent_ns) : kNoHigh;
    low_ = std::max(low_, low);
    high_ = std::min(high_, high);
    if (low_ <= high_) return;
    // No such clock: the peer's was set, or it says anything. Only the newest answer counts.
    low_ = low;
    high_ = high;
  }

  // By what the clocks may have drifted apart since the last time.
  void widen(std::uint64_t now_ns) noexcept {
    const auto drift = static_cast<std::int64_t>((now_ns - widened_ns_) / kDriftParts);
    widened_ns_ = now_ns;
    if (low_ != kNoLow) low_ -= drift;
    if (high_ != kNoHigh) high_ += drift;
  }

  Estimate estimate() const noexcept {
    if (low_ == kNoLow || high_ == kNoHigh || low_ > high_) return {};
    const std::uint64_t width =
        static_cast<std::uint64_t>(high_) - static_cast<std::uint64_t>(low_);
    return {true, low_ + static_cast<std::int64_t>(width / 2), width / 2};
  }

 private:
  // 200 parts in a million: the worst crystals of two machines.
  static constexpr std::uint64_t kDriftParts = 5000;
  // Far from the ends of their type, and further apart than any two clocks.
  static constexpr std::int64_t kMost = std::int64_t{1} << 61;
  static constexpr std::int64_t kNoLow = -2 * kMost;
  static constexpr std::int64_t kNoHigh = 2 * kMost - 1;

  static std::int64_t difference(std::uint64_t a, std::uint64_t b) noexcept {
    return std::clamp(static_cast<std::int64_t>(a - b), -kMost, kMost);
  }

  std::int64_t low_ = kNoLow, high_ = kNoHigh;
  std::uint64_t widened_ns_ = 0;
};

}  // namespace tern::net
