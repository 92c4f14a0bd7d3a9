#pragma once

// When the pages that ops have touched go back to the kernel: some time after the last op, once, so
// that a daemon at rest is not woken for it.

#include <cstdint>

namespace tern::daemon {

class IdlePages {
 public:
  void touch() noexcept { touched_ = true; }
  bool touched() const noexcept { return touched_; }
  // True, once: the lane has been at rest for `keep_ns`, and what was touched is to be dropped.
  bool due(std::uint64_t now_ns, bool busy, std::uint64_t keep_ns) noexcept {
    if (!touched_) return false;
    if (busy) {
      deadline_ns_ = 0;
      return false;
    }
    if (deadline_ns_ == 0) deadline_ns_ = now_ns + keep_ns;
    if (now_ns < deadline_ns_) return false;
    touched_ = false;
    deadline_ns_ = 0;
    return true;
  }
  // 0: nothing waits for a time.
  std::uint64_t deadline_ns() const noexcept { return deadline_ns_; }

 private:
  bool touched_ = false;
  std::uint64_t deadline_ns_ = 0;
};

}  // namespace tern::daemon
