#pragma once

// Which parts of a world's daemons have something to do, and when the others will: each of them is
// looked at when its time has come, and not before.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "network/event_heap.h"

namespace tern::sim {

class WakeList {
 public:
  struct Part {
    std::size_t daemon = 0;
    std::size_t number = 0;  // 0 is the conductor
  };

  // Then, unless it is woken before.
  void wake_at(std::uint64_t ns, const Part& part) {
    std::uint64_t& due = due_of(part);
    if (due <= ns) return;
    due = ns;
    events_.add(ns, part);
  }
  // The earliest part whose time has come, if there is one. It sleeps until it is woken again.
  bool take(std::uint64_t now_ns, Part& part) {
    while (events_.next_ns() <= now_ns) {
      const std::uint64_t at = events_.next_ns();
      part = events_.take();
      // Else it was woken before, and this is the event of the later time.
      if (due_of(part) != at) continue;
      due_of(part) = kNever;
      return true;
    }
    return false;
  }
  std::uint64_t next_ns() const noexcept { return events_.next_ns(); }

 private:
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};

  std::uint64_t& due_of(const Part& part) {
    if (due_.size() <= part.daemon) due_.resize(part.daemon + 1);
    std::vector<std::uint64_t>& parts = due_[part.daemon];
    if (parts.size() <= part.number) parts.resize(part.number + 1, kNever);
    return parts[part.number];
  }

  EventHeap<Part> events_;
  std::vector<std::vector<std::uint64_t>> due_;  // by daemon and part
};

}  // namespace tern::sim
