#pragma once

// The memory of frames: slabs for blocks that come and go, and a token for every frame in flight
// that borrows memory, until all its receivers have acknowledged it.

#include <cstdint>
#include <vector>

#include "collective/group_ops.h"
#include "daemon/lane/lane_job.h"
#include "daemon/lane/lane_settings.h"
#include "daemon/lane/mapping.h"
#include "daemon/lane/slab_pool.h"
#include "daemon/lane/stock.h"
#include "net/transport.h"
#include "wire/frame.h"

namespace tern::daemon {

// Whose memory a frame may borrow.
class MemoryOwner {
 public:
  // All receivers of a frame that borrowed memory of the op have acknowledged it.
  virtual void frame_acked(collective::OpId op) = 0;

 protected:
  ~MemoryOwner() = default;
};

// Names a token; what net::Link carries with a frame. 0: the frame borrows nothing.
using Cookie = std::uint64_t;

// What a frame in flight keeps from being used again.
struct BorrowedMemory {
  MemoryOwner* owner = nullptr;  // is told when all have acknowledged; null: nobody is
  collective::OpId op = collective::kNoSlot;
  SlabPool* pool = nullptr;
  std::uint32_t slab = SlabPool::kNone;  // given back to `pool`
};

class FrameMemory {
 public:
  // As the daemon starts. REQUIRES: there is room for mapped_bytes().
  explicit FrameMemory(const LaneSettings& settings);
  static std::uint64_t mapped_bytes(const LaneSettings& settings) noexcept;

  SlabPool& accumulators() noexcept { return accumulators_; }    // sums of chunks this node owns
  SlabPool& receive_slabs() noexcept { return receive_slabs_; }  // contributions of other nodes
  SlabPool& send_slabs() noexcept { return send_slabs_; }        // encoded contributions
  SlabPool& result_slabs() noexcept { return result_slabs_; }    // encoded results

  // What nobody holds, and what jobs hold.
  collective::Room room() const noexcept;
  collective::Room taken() const noexcept;
  // What a job may take now, of a group with so many nodes.
  collective::Room room(const LaneJob& job, const LaneLoad& load, std::uint32_t nodes,
                        std::size_t jobs) const noexcept;
  std::size_t tokens() const noexcept { return tokens_.size(); }
  std::uint32_t frames_in_flight() const noexcept {
    return contributions_in_flight_ + results_in_flight_;
  }
  std::uint32_t slabs_received() const noexcept {
    return receive_slabs_.count() - receive_slabs_.free_count();
  }

  // A place among the frames in flight, taken when the block is begun. REQUIRES: room() has one.
  Cookie reserve(LaneJob& job, wire::Leg leg) noexcept;
  // The frame is there: so many sends carry the cookie, each of which is acknowledged once.
  void lend(Cookie cookie, std::uint32_t receivers, const BorrowedMemory& memory) noexcept;
  // Instead of lend(): nothing is sent.
  void withdraw(Cookie cookie) noexcept;
  // One receiver has acknowledged. True, and `memory` says what was lent, when it was the last.
  bool acked(Cookie cookie, BorrowedMemory& memory) noexcept;

  // The transport sends from these pools.
  void tell(net::Transport& transport) const;
  void untell(net::Transport& transport) const;
  // Gives pages that nobody uses back to the kernel.
  void drop_pages() noexcept;

 private:
  struct Token {
    wire::Leg leg = wire::Leg::none;
    std::uint32_t unacked = 0;
    LaneJob* job = nullptr;
    BorrowedMemory memory;
  };

  void free_token(Cookie cookie) noexcept;

  Stock accumulator_stock_;
  Stock receive_stock_;
  Stock contribution_stock_;
  Stock result_stock_;
  Mapping memory_;         // of the pools
  SlabPool accumulators_;  // a raw result is sent from there
  SlabPool receive_slabs_;
  SlabPool send_slabs_;
  SlabPool result_slabs_;
  std::vector<Token> tokens_;
  std::vector<std::uint32_t> free_tokens_;
  std::uint32_t contributions_in_flight_ = 0;
  std::uint32_t results_in_flight_ = 0;
};

}  // namespace tern::daemon
