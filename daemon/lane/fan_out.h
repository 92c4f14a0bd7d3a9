#pragma once

// What a lane's links may leave in the kernel because the lane serves several nodes. Links that the
// kernel fills one after the other carry whole chunks in convoys: where several senders meet at a
// port, each of them waits for it while another port is idle. A link that leaves little in the
// kernel takes turns with the others in small pieces, and all ports are busy. On a fast path this
// would only cost: no queue grows there, and each piece is a system call and a wake-up. Where it is
// known what a port of the switch holds, pieces are so small that those of all nodes fit one port.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "net/transport.h"

namespace tern::daemon {

class FanOut {
 public:
  static constexpr std::uint64_t kLookNs = 20'000'000;
  // What the links carry together, in bytes a second, from which on the lane bounds them less, and
  // not at all: between 100 Mbit/s, 1 Gbit/s and what a processor can do, where pieces of 16 KiB, of
  // 64 KiB and no bound were each the fastest.
  static constexpr double kMiddle = 30e6;
  static constexpr double kFast = 155e6;
  static constexpr net::QueueBound kSlowBound{16 << 10, 16 << 10};
  static constexpr net::QueueBound kMiddleBound{32 << 10, 64 << 10};
  // At the least a link has two pieces of two segments, each pair of which the other side
  // acknowledges.
  static constexpr std::size_t kLeastPiece = std::size_t{2} * 1448;

  // What a port of the switch holds, in bytes; 0: not known.
  explicit FanOut(std::size_t port_bytes = 0) noexcept : port_bytes_(port_bytes) {}
  bool knows_ports() const noexcept { return port_bytes_ > 0; }

  // Whether it is time for a look.
  bool due(std::uint64_t now_ns) const noexcept { return now_ns - looked_ns_ >= kLookNs; }

  // `acked_bytes` and `busy_ns`: of all `links` together by their carriers, since ever. What they
  // carry is counted by the time in which they were busy: ops have pauses.
  void look(std::uint64_t acked_bytes, std::uint64_t busy_ns, std::size_t links,
            std::uint64_t now_ns) noexcept {
    const bool shows = acked_bytes > acked_bytes_ && busy_ns > busy_ns_ && links == links_;
    if (shows) {
      const double now = static_cast<double>(acked_bytes - acked_bytes_) * 1e9 *
                         static_cast<double>(links) / static_cast<double>(busy_ns - busy_ns_);
      constexpr double kWeight = 0.2;
      bytes_per_s_ = bytes_per_s_ == 0.0 ? now : bytes_per_s_ + (now - bytes_per_s_) * kWeight;
    }
    looked_ns_ = now_ns;
    acked_bytes_ = acked_bytes;
    busy_ns_ = busy_ns;
    links_ = links;
  }

  // The lane serves fewer than two nodes.
  void look_at_none(std::uint64_t now_ns) noexcept {
    *this = FanOut(port_bytes_);
    looked_ns_ = now_ns;
  }

  // Of each of so many links, the farthest of which has this round trip. While nothing is known of
  // the links there is no bound; where ports are known they are taken for middling, for the first op
  // must not fill them either. Twice what the path itself holds is always free: a bound below that
  // would slow the links, and what they carry then would make it stay.
  net::QueueBound bound(std::size_t links, std::uint64_t round_trip_ns) const noexcept {
    if (bytes_per_s_ >= kFast || links == 0) return {};
    if (bytes_per_s_ == 0.0 && !knows_ports()) return {};
    const bool is_slow = bytes_per_s_ > 0.0 && bytes_per_s_ < kMiddle;
    net::QueueBound bound = is_slow ? kSlowBound : kMiddleBound;
    if (knows_ports()) {
      // Each node may have a piece of its own on the way and one more.
      const std::size_t piece = port_bytes_ / 2 / links / kLeastPiece * kLeastPiece;
      bound.bytes = std::min(bound.bytes, std::max(piece, 2 * kLeastPiece));
      bound.record_bytes = std::min(bound.record_bytes, std::max(piece, kLeastPiece));
    }
    const double path = bytes_per_s_ * static_cast<double>(round_trip_ns) / 1e9;
    bound.bytes =
        std::max(bound.bytes, static_cast<std::size_t>(2.0 * path / static_cast<double>(links)));
    return bound;
  }

 private:
  std::size_t port_bytes_;
  std::uint64_t looked_ns_ = 0;
  std::uint64_t acked_bytes_ = 0;
  std::uint64_t busy_ns_ = 0;
  std::size_t links_ = 0;
  double bytes_per_s_ = 0.0;  // 0: not known
};

}  // namespace tern::daemon
