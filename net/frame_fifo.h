#pragma once

// The frames of a link that its peer has not acknowledged, in order of their sequence numbers.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "net/transport.h"

namespace tern::net {

struct FrameRecord {
  static constexpr std::size_t kHeadBytes = wire::kFrameHeaderBytes + 64;

  // Header and prefix in one piece: with the body, two buffers per frame for a scatter write.
  // Replay sends these bytes again, unchanged.
  std::array<std::byte, kHeadBytes> head;
  std::uint32_t head_bytes = 0;
  std::uint32_t payload_bytes = 0;
  bool has_crc = true;  // of the payload, in the header
  std::span<const std::byte> body;
  std::uint64_t cookie = 0;
  std::uint64_t sent_ns = 0;      // when it was last given to a connection
  std::uint64_t end_offset = 0;   // bytes given to that connection up to this frame's end
  std::vector<std::byte> copied;  // the body, where the link owns it

  std::size_t copied_bytes() const noexcept {
    return body.data() == copied.data() ? body.size() : 0;
  }

  OutgoingFrame outgoing() const noexcept { return {std::span(head).first(head_bytes), body}; }
  // For a frame that was sealed without, and now leaves on a carrier that needs the CRC.
  void add_payload_crc() noexcept;
};

// Records have stable addresses, because connections borrow their heads. They come in blocks and
// are used again: beyond the high-water mark nothing is allocated.
class FrameFifo {
 public:
  struct Payload {
    std::span<const std::byte> prefix;  // is copied to the head
    std::span<const std::byte> body;    // is borrowed until pop()
  };

  // Sequence numbers begin at 1.
  FrameRecord& push();
  // Completes the newest record and the header: its sequence number, its sizes and its CRCs.
  // REQUIRES: once for each push(); the payload fits a frame, and its prefix the record.
  void seal(wire::FrameHeader& header, const Payload& payload, bool with_payload_crc);
  FrameRecord& front() noexcept { return at(first_); }
  void pop() noexcept;
  FrameRecord& at(std::uint64_t seq) noexcept { return *ring_[seq & (ring_.size() - 1)]; }

  bool empty() const noexcept { return first_ == next_; }
  std::uint64_t size() const noexcept { return next_ - first_; }
  std::uint64_t bytes() const noexcept { return bytes_; }  // of payload
  // Memory of its own that it takes for the frames: records, and bodies that the link owns.
  std::uint64_t held_bytes() const noexcept { return size() * sizeof(FrameRecord) + copied_bytes_; }
  std::uint64_t first() const noexcept { return first_; }  // oldest one not acknowledged
  std::uint64_t next() const noexcept { return next_; }    // the next push gets this number
  bool holds(std::uint64_t seq) const noexcept { return seq >= first_ && seq < next_; }
  // A peer that expects this frame next can be given it, and all after it.
  bool may_continue_at(std::uint64_t seq) const noexcept { return seq >= first_ && seq <= next_; }

 private:
  static constexpr std::size_t kBlockRecords = 32;
  // A copied body beyond this is given back to the heap rather than kept for the next frame.
  static constexpr std::size_t kKeepBytes = 64 << 10;

  void grow_ring();
  void grow_pool();

  std::vector<FrameRecord*> ring_;  // size is a power of two; record of seq at seq modulo size
  std::vector<FrameRecord*> free_;
  std::vector<std::unique_ptr<FrameRecord[]>> blocks_;
  std::uint64_t first_ = 1;
  std::uint64_t next_ = 1;
  std::uint64_t bytes_ = 0;
  std::uint64_t copied_bytes_ = 0;
};

}  // namespace tern::net
