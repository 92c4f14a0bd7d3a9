#pragma once

// The receiving half of a TCP connection, as arithmetic on the places of a stream: what has
// arrived, and when an acknowledgement is owed: at once for every second segment and where
// something is missing, otherwise after 40 ms, as Linux has it.

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>

namespace tern::sim {

class SegmentReceiver {
 public:
  static constexpr std::uint64_t kAckDelayNs = 40'000'000;

  void take(std::uint64_t begin, std::uint64_t end, std::uint64_t now_ns) {
    const bool had_gap = !later_.empty();
    const bool in_order = begin <= arrived_ && end > arrived_;
    if (in_order) {
      arrived_ = end;
      while (!later_.empty() && later_.begin()->first <= arrived_) {
        arrived_ = std::max(arrived_, later_.begin()->second);
        later_.erase(later_.begin());
      }
    } else if (begin > arrived_) {
      keep(begin, end);
    }
    if (owed_segments_++ == 0) due_ns_ = now_ns + kAckDelayNs;
    if (!in_order || had_gap || owed_segments_ >= 2) due_ns_ = now_ns;
  }
  // All before this has arrived.
  std::uint64_t arrived() const noexcept { return arrived_; }

  // When an acknowledgement must leave. Never, if none is owed.
  std::uint64_t ack_due_ns() const noexcept {
    return owed_segments_ > 0 ? due_ns_ : ~std::uint64_t{0};
  }
  // A packet has left that acknowledges all that has arrived. One that carries bytes too is no
  // duplicate acknowledgement: where something is missing a pure one is still due.
  void note_acknowledged(bool is_pure) noexcept {
    if (is_pure || later_.empty()) owed_segments_ = 0;
  }

 private:
  void keep(std::uint64_t begin, std::uint64_t end) {
    auto at = later_.lower_bound(begin);
    if (at != later_.begin() && std::prev(at)->second >= begin) --at;
    while (at != later_.end() && at->first <= end) {
      begin = std::min(begin, at->first);
      end = std::max(end, at->second);
      at = later_.erase(at);
    }
    later_.emplace(begin, end);
  }

  std::uint64_t arrived_ = 0;
  std::map<std::uint64_t, std::uint64_t> later_;  // what came with something missing before it
  std::uint32_t owed_segments_ = 0;
  std::uint64_t due_ns_ = 0;
};

}  // namespace tern::sim
