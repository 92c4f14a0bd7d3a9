#pragma once

// A connection over the switched network, as the kernels of its two hosts have it.

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>

#include "byte_ring.h"
#include "net/outgoing_queue.h"
#include "net/transport.h"
#include "reno_sender.h"
#include "segment_receiver.h"

namespace tern::sim {

// What the program at one end has sent, and what its kernel has taken of that, as net/tcp does it:
// a kernel takes one more write while what it holds is below its bound; then it takes none before
// a third of the bound is free.
class SendQueue {
 public:
  void push(const net::OutgoingFrame& frame) {
    frames_.push(frame);
    queued_bytes_ += frame.head.size() + frame.body.size();
  }
  void bound(const net::QueueBound& bound) noexcept { bound_ = bound; }
  std::size_t queued_bytes() const noexcept { return queued_bytes_; }
  // As much as the kernel takes now, into `stream`.
  void write(RenoSender& sender, ByteRing& stream, std::uint64_t now_ns);
  // What is not written yet never will be.
  void forget() {
    while (!frames_.empty()) frames_.pop();
    queued_bytes_ = 0;
  }

 private:
  // Without a bound: what Linux has at first, and at most; in between about three windows. It takes
  // 64 KiB at a time.
  static constexpr std::uint64_t kFirstBytes = 64 << 10;
  static constexpr std::uint64_t kMostBytes = 4 << 20;
  static constexpr std::size_t kUnboundWriteBytes = 64 << 10;

  std::uint64_t limit(const RenoSender& sender) const noexcept {
    return bound_.bytes > 0 ? bound_.bytes
                            : std::clamp(3 * sender.window(), kFirstBytes, kMostBytes);
  }
  std::size_t write_once(std::size_t most, ByteRing& stream);

  net::OutgoingQueue frames_;
  std::size_t first_done_ = 0;  // bytes of the first frame that are written
  std::size_t queued_bytes_ = 0;
  net::QueueBound bound_;
  bool is_full_ = false;
};

struct NetworkEnd {
  std::uint32_t host = 0;
  net::Endpoint at;
  SendQueue queue;
  RenoSender sender;
  ByteRing stream;  // what the sender has taken and the other program has not read
  SegmentReceiver receiver;
  std::uint64_t wanted = 0;  // the program is woken when all before this has arrived
  bool gone = false;         // closed on this side
  bool told_end = false;     // has heard that the other is
  std::uint64_t timer_ns = ~std::uint64_t{0};  // the earliest event that waits for it
  std::function<void()> wake;                  // whoever reads; empty: nobody
};

struct NetworkPipe {
  enum class State : std::uint8_t { opening, open, refused };

  std::uint32_t number = 0;
  State state = State::opening;
  std::array<NetworkEnd, 2> ends;  // 0 connected, 1 accepted

  // Bytes that have arrived at this end and are unread, and reading them.
  std::uint64_t unread(std::size_t side) const noexcept {
    return ends[side].receiver.arrived() - ends[1 - side].stream.begin();
  }
  ByteRing& arriving(std::size_t side) noexcept { return ends[1 - side].stream; }
  // Nothing comes after what is unread.
  bool has_ended(std::size_t side) const noexcept {
    const NetworkEnd& other = ends[1 - side];
    return ends[side].told_end && ends[side].receiver.arrived() == other.sender.written();
  }
};

}  // namespace tern::sim
