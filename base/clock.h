#pragma once

#include <cstdint>

namespace tern {

// Time as a parameter: everything that has a timeout takes a Clock, so that a test moves time by
// hand.
class Clock {
 public:
  virtual ~Clock() = default;
  // Monotonic nanoseconds from an arbitrary origin.
  virtual std::uint64_t now_ns() const noexcept = 0;
};

class SteadyClock final : public Clock {
 public:
  std::uint64_t now_ns() const noexcept override;
};

class ManualClock final : public Clock {
 public:
  std::uint64_t now_ns() const noexcept override { return now_ns_; }
  void advance_ns(std::uint64_t delta_ns) noexcept { now_ns_ += delta_ns; }

 private:
  // Starts above zero, because zero means "never" in timestamps.
  std::uint64_t now_ns_ = 1'000'000'000;
};

}  // namespace tern
