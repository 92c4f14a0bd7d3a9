#pragma once

#include <cstdint>

#include "base/clock.h"

namespace tern {

// A part of a thread's turn. Who has many things to do does one, and more of them until the slice
// is over. The others wait for the next turn, and whoever else waits for the thread comes before
// them.
class TimeSlice {
 public:
  // Begins now. REQUIRES: the clock outlives this.
  TimeSlice(const Clock& clock, std::uint64_t ns) noexcept
      : clock_(clock), end_ns_(clock.now_ns() + ns) {}
  bool is_over() const noexcept { return clock_.now_ns() >= end_ns_; }

 private:
  const Clock& clock_;
  std::uint64_t end_ns_;
};

// A slice that begins at its first question, which comes after the first thing done: who finds
// nothing to do, as most often, or one thing, reads no clock.
class LateTimeSlice {
 public:
  // REQUIRES: the clock outlives this.
  LateTimeSlice(const Clock& clock, std::uint64_t ns) noexcept : clock_(clock), ns_(ns) {}
  bool is_over() noexcept {
    const std::uint64_t now_ns = clock_.now_ns();
    if (begun_ns_ == 0) begun_ns_ = now_ns;
    return now_ns - begun_ns_ >= ns_;
  }

 private:
  const Clock& clock_;
  const std::uint64_t ns_;
  std::uint64_t begun_ns_ = 0;  // 0: not yet
};

}  // namespace tern
