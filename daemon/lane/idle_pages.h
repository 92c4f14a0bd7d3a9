#pragma once

// When the pages that ops have touched go back to the kernel: some time after the last op, once, so
// that a daemon at rest is not woken for it.

#include <cstdint>

namespace tern::daemon {

class IdlePages {
 public:
  void touch() noexcept {
    touched_ = true;
    deadline_ns_ = 0;
  }
  bool touched() const noexcept { return touched_; }
  // The lane has been at rest for `keep_ns`: what was touched is to be dropped, in as many turns as
  // that takes, until dropped() or until the lane is busy.
  bool due(std::uint64_t now_ns, bool busy, std::uint64_t keep_ns) noexcept {
    if (!touched_) return false;
    if (busy) {
      deadline_ns_ = 0;
      return false;
    }
    if (deadline_ns_ == 0) deadline_ns_ = now_ns + keep_ns;
    return now_ns >= deadline_ns_;
  }
  void dropped() noexcept {
    touched_ = false;
    deadline_ns_ = 0;
  }
  // 0: nothing waits for a time.
  std::uint64_t deadline_ns() const noexcept { return deadline_ns_; }

 private:
  bool touched_ = false;
  std::uint64_t deadline_ns_ = 0;
};

}  // namespace tern::daemon
