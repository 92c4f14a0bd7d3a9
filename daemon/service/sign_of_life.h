#pragma once

#include <atomic>
#include <cstdint>

namespace tern::daemon {

// How a thread shows that it makes progress, without a lock: it is asked, and answers between two
// rounds of its work. A thread that sleeps is woken to answer; one that hangs, in its work or in
// its sleep, does not.
class SignOfLife {
 public:
  // Thread: the one that asks. It also wakes the other, by means of its own.
  void ask() noexcept { asked_.fetch_add(1, std::memory_order_release); }
  bool answered() const noexcept {
    return answered_.load(std::memory_order_acquire) == asked_.load(std::memory_order_relaxed);
  }

  // Thread: the one that is asked.
  void answer() noexcept {
    const std::uint64_t asked = asked_.load(std::memory_order_acquire);
    if (asked != answered_.load(std::memory_order_relaxed)) {
      answered_.store(asked, std::memory_order_release);
    }
  }

 private:
  // Each thread writes to a line of its own.
  alignas(64) std::atomic<std::uint64_t> asked_{0};
  alignas(64) std::atomic<std::uint64_t> answered_{0};
};

}  // namespace tern::daemon
