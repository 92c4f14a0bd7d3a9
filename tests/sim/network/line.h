#pragma once

// One direction of a host's cable: packets wait for it and leave one after the other, at its rate.

#include <algorithm>
#include <cstdint>
#include <deque>

namespace tern::sim {

// What of a TCP connection travels at a time: bytes of its stream, or none, and an acknowledgement.
struct Packet {
  static constexpr std::uint32_t kHeaderBytes = 14 + 20 + 32;  // Ethernet, IP, TCP with timestamps

  std::uint32_t pipe = 0;
  std::uint32_t bytes = 0;
  std::uint64_t begin = 0;  // of the bytes, in the stream
  std::uint64_t ack = 0;    // all before this has arrived
  std::uint8_t to = 0;      // which end of the pipe
  bool again = false;       // some of the bytes were sent before

  std::uint32_t wire_bytes() const noexcept { return bytes + kHeaderBytes; }
};

class Line {
 public:
  Line(std::uint64_t bytes_per_s, std::uint64_t delay_ns)
      : bytes_per_s_(bytes_per_s), delay_ns_(delay_ns) {}

  void push(const Packet& packet, std::uint64_t now_ns) {
    free_ns_ = std::max(free_ns_, now_ns) +
               std::uint64_t{packet.wire_bytes()} * 1'000'000'000 / bytes_per_s_;
    packets_.push_back({packet, free_ns_ + delay_ns_});
    bytes_ += packet.wire_bytes();
    longest_bytes_ = std::max(longest_bytes_, bytes_);
    sent_bytes_ += packet.wire_bytes();
  }
  bool empty() const noexcept { return packets_.empty(); }
  // When the oldest has come to the other end. REQUIRES: not empty.
  std::uint64_t next_ns() const noexcept { return packets_.front().arrives_ns; }
  Packet pop() {
    const Packet packet = packets_.front().packet;
    packets_.pop_front();
    bytes_ -= packet.wire_bytes();
    return packet;
  }

  // Of packets that have not come to the other end.
  std::uint64_t bytes() const noexcept { return bytes_; }
  std::uint64_t longest_bytes() const noexcept { return longest_bytes_; }
  std::uint64_t sent_bytes() const noexcept { return sent_bytes_; }
  void forget_counts() noexcept {
    longest_bytes_ = bytes_;
    sent_bytes_ = 0;
  }

 private:
  struct Entry {
    Packet packet;
    std::uint64_t arrives_ns;
  };

  std::uint64_t bytes_per_s_;
  std::uint64_t delay_ns_;
  std::deque<Entry> packets_;
  std::uint64_t free_ns_ = 0;  // until when it is busy
  std::uint64_t bytes_ = 0;
  std::uint64_t longest_bytes_ = 0;
  std::uint64_t sent_bytes_ = 0;
};

}  // namespace tern::sim
