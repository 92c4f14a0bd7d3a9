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
  // At the least a link has a piece of two segments, which the other side acknowledges together.
  static constexpr std::size_t kLeastPiece = std::size_t{2} * 1448;

  // What a port of the switch holds, in bytes; 0: not known.
  explicit FanOut(std::size_t port_bytes = 0) noexcept : port_bytes_(port_bytes) {}
  bool knows_ports() const noexcept { return port_bytes_ > 0; }

  // Whether it is time for a look.
  bool due(std::uint64_t now_ns) const noexcept { return now_ns - looked_ns_ >= kLookNs; }

  // What links have carried since the last look that said something. Ops have pauses, and not all
  // links are busy at once: the time in which what they carried was carried is the mean of the
  // times in which each was busy, by the bytes of each.
  class Carried {
   public:
    void add(std::uint64_t bytes, std::uint64_t busy_ns) noexcept {
      bytes_ += static_cast<double>(bytes);
      byte_ns_ += static_cast<double>(bytes) * static_cast<double>(busy_ns);
    }
    double bytes() const noexcept { return bytes_; }
    double busy_ns() const noexcept { return bytes_ == 0.0 ? 0.0 : byte_ns_ / bytes_; }

   private:
    double bytes_ = 0.0;
    double byte_ns_ = 0.0;
  };
  // False: the carriers have counted no time yet, which they do in steps of milliseconds; it is to
  // be asked again about the same bytes and more.
  bool look(const Carried& carried, std::uint64_t now_ns) noexcept {
    looked_ns_ = now_ns;
    // A frame now and then waits for its acknowledgement, and not for the path.
    if (carried.bytes() < kLeastBytes) return true;
    const double busy_ns = carried.busy_ns();
    if (busy_ns == 0.0) return false;
    const double left = kMemoryNs / (kMemoryNs + busy_ns);
    bytes_ = (bytes_ + carried.bytes()) * left;
    busy_ns_ = (busy_ns_ + busy_ns) * left;
    return true;
  }

  // The lane serves fewer than two nodes.
  void look_at_none(std::uint64_t now_ns) noexcept {
    *this = FanOut(port_bytes_);
    looked_ns_ = now_ns;
  }

  // Of one of so many links, which has this round trip. While nothing is known of the links there is
  // no bound; where ports are known they are taken for middling, for the first op must not fill them
  // either. The link's share of twice what its path itself holds is always free: a bound below that
  // would slow the links, and what they carry then would make it stay.
  net::QueueBound bound(std::size_t links, std::uint64_t round_trip_ns) const noexcept {
    const double rate = bytes_per_s();
    if (rate >= kFast || links == 0) return {};
    if (rate == 0.0 && !knows_ports()) return {};
    const bool is_slow = rate > 0.0 && rate < kMiddle;
    net::QueueBound bound = is_slow ? kSlowBound : kMiddleBound;
    if (knows_ports()) {
      // Each node may have a piece of its own on the way and one more.
      const std::size_t piece = port_bytes_ / 2 / links / kLeastPiece * kLeastPiece;
      bound.bytes = std::min(bound.bytes, std::max(piece, kLeastPiece));
      bound.record_bytes = std::min(bound.record_bytes, std::max(piece, kLeastPiece));
    }
    const double path = rate * static_cast<double>(round_trip_ns) / 1e9;
    bound.bytes =
        std::max(bound.bytes, static_cast<std::size_t>(2.0 * path / static_cast<double>(links)));
    return bound;
  }

 private:
  // How far back what was carried counts, in time in which links were busy: the last moments of an
  // op, in which a few links are busy by themselves, must not count as much as all of it.
  static constexpr double kMemoryNs = 80e6;
  static constexpr double kLeastBytes = 8 << 10;

  // 0: not known.
  double bytes_per_s() const noexcept { return busy_ns_ == 0.0 ? 0.0 : bytes_ * 1e9 / busy_ns_; }

  std::size_t port_bytes_;
  std::uint64_t looked_ns_ = 0;
  double bytes_ = 0.0;  // what was carried, the less the longer ago
  double busy_ns_ = 0.0;
};

}  // namespace tern::daemon
