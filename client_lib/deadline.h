#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "base/clock.h"

namespace tern::client_lib {

// An instant of the monotonic clock, or never.
class Deadline {
 public:
  // Negative: never.
  static Deadline after_ms(std::int64_t timeout_ms) noexcept {
    if (timeout_ms < 0 || timeout_ms > kForeverMs) return Deadline(kNever);
    return Deadline(SteadyClock().now_ns() + static_cast<std::uint64_t>(timeout_ms) * 1'000'000u);
  }

  // 0 when it has passed.
  std::uint64_t remaining_ns() const noexcept {
    if (at_ns_ == kNever) return kNever;
    const std::uint64_t now_ns = SteadyClock().now_ns();
    return now_ns < at_ns_ ? at_ns_ - now_ns : 0;
  }
  bool passed() const noexcept { return remaining_ns() == 0; }

  // For poll(): rounded up, at most slice_ms.
  int poll_ms(int slice_ms) const noexcept {
    const std::uint64_t ms = remaining_ns() / 1'000'000u + (at_ns_ == kNever ? 0 : 1);
    return static_cast<int>(std::min<std::uint64_t>(ms, static_cast<std::uint64_t>(slice_ms)));
  }

 private:
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};
  // Ten years: beyond it a sum of nanoseconds could wrap.
  static constexpr std::int64_t kForeverMs = std::int64_t{10} * 366 * 86'400'000;

  explicit Deadline(std::uint64_t at_ns) noexcept : at_ns_(at_ns) {}
  std::uint64_t at_ns_;
};

}  // namespace tern::client_lib
