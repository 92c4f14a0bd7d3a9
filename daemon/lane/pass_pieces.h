#pragma once

// Elements of sends that do not travel with their offer: pieces, which are elements as they are or
// blocks. Each goes from the sender's memory into a frame, and from the frame to the recv's memory.

#include <cstdint>
#include <span>

#include "collective/mailbox.h"
#include "daemon/lane/block_path.h"
#include "daemon/lane/group_core.h"
#include "daemon/lane/pass_blocks.h"
#include "daemon/lane/pass_copies.h"
#include "daemon/lane/pass_memories.h"

namespace tern::daemon {

// Of a send or recv; `number` is its offer's.
wire::FrameHeader pass_header(const GroupCore& core, wire::FrameKind kind,
                              const collective::Envelope& envelope,
                              collective::PassId number) noexcept;

class PassPieces final : private MemoryOwner, private BlockSink {
 public:
  struct Partners {
    collective::Mailbox& mailbox;
    PassMemories& memories;
    PassCopies& copies;
  };
  // Everything given outlives this.
  PassPieces(GroupCore& core, const Partners& partners);
  // Before the first step and frame.
  void attach(LaneResources& resources);

  // Whether the step makes a block, which is charged to the lane's turn where it is made.
  bool makes_block(const collective::PassStep& step) const noexcept;
  void send(const collective::PassStep& step);

  // ---- Frames ----
  // Where the piece goes, before it comes. False: the peer has broken the protocol.
  bool place(std::uint32_t node, const wire::FrameHeader& header, net::PayloadPlace& place);
  void accept(std::uint32_t node, const net::PayloadPlace& place);
  void damaged(std::uint32_t node);
  void abandoned(std::uint32_t node, const filling::Piece& piece) {
    end_without(node, piece, collective::Mailbox::Piece::abandoned);
  }

 private:
  // `lent` is given back with the frame.
  struct Made {
    collective::PassStep step;
    Cookie cookie = 0;
    std::span<const std::byte> payload;
    BorrowedMemory lent;
  };

  void frame_acked(collective::OpId pass) override { partners_.mailbox.piece_freed(pass); }
  void on_block(const BlockRequest& request, const BlockCompletion& completion) override;

  void encode(const collective::PassStep& step);
  void encoded(const BlockRequest& request, const BlockCompletion& completion);
  void send_made(const Made& piece);
  void accept_block(std::uint32_t node, const filling::Piece& piece,
                    std::span<const std::byte> block);
  void end_without(std::uint32_t node, const filling::Piece& piece, collective::Mailbox::Piece how);
  void delivered(const BlockRequest& request, const BlockCompletion& completion);

  GroupCore& core_;
  Partners partners_;
  PassBlocks blocks_;
  BlockPath path_;
};

}  // namespace tern::daemon
