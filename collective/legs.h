#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collective/action.h"
#include "collective/group_shape.h"
#include "collective/input_gate.h"
#include "collective/op.h"
#include "collective/op_rows.h"

namespace tern::collective {

// The two legs of ops that do not travel with their announcements. On the reduce leg a node grants
// chunks that it owns, contributes to those that others have granted, and adds what comes in a
// fixed order; on the broadcast leg it sends and gets results. Here are the chunks that this node
// has granted and how far it is with every other node. Of an op only what its plan and announcement
// say is read.
class Legs {
 public:
  Legs(const GroupShape& shape, std::size_t op_slots);

  // The op has been released: its slot is another's now.
  void forget(OpId id);
  // The op's chunks are nobody's. What was parked is kept for parked().
  void free_chunks(OpId id);

  // ---- Frames. False: the peer broke the protocol. ----

  // The owner `node` has room for `count` chunks from number `chunk` on.
  struct Grant {
    std::uint32_t node = 0;
    std::uint32_t chunk = 0;
    std::uint32_t count = 0;
  };
  bool take_grant(OpId id, const Op& op, const Grant& grant);
  // The slot of the chunk that a contribution of `node` is for: they come in the order of the
  // grants. kNoSlot: it is for none.
  ChunkId expected_by(OpId id, const Op& op, std::uint32_t node, std::uint32_t number) const;
  void contributed(ChunkId chunk, std::uint32_t node);
  bool expects_result(OpId id, const Op& op, std::uint32_t node, std::uint32_t number) const;
  void got_result(OpId id, std::uint32_t node) { ++peers_.write(id, node).results; }
  // It lies in the outputs, from where it may be due to be sent on.
  void delivered(OpId id, const Op& op, std::uint32_t number);

  // ---- Actions ----

  struct Means {
    const Room& room;
    const InputGate& inputs;
  };
  // What can be done next for a running op with these; none if nothing.
  Action next(OpId id, const Op& op, const Means& means);
  // An action of the op that next() has given is done; of an op that has failed nothing comes of it.
  // Returns of how many of the op's steps it was the last: see Op::steps_left.
  std::uint32_t done(const Action& action, const Op& op);
  // Instead of done() of a finish: its sum is kept elsewhere until all are known.
  void park(const Action& finish);

  // ---- Look ----

  OpId op_of(ChunkId chunk) const noexcept { return chunks_[chunk].op; }
  std::uint32_t chunk_number(const Op& op, ChunkId chunk) const noexcept {
    return op.chunks.chunk(self_, chunks_[chunk].index);
  }
  ChunkId slot(OpId id, std::uint32_t index) const noexcept;
  // Indices of chunks whose sums are parked.
  std::span<const std::uint32_t> parked(OpId id) const noexcept { return parked_[id]; }

 private:
  struct Peer {                     // of an op, with one other node
    std::uint32_t granted = 0;      // chunks of that node it has granted us
    std::uint32_t sent = 0;         // contributions sent to it
    bool sending = false;           // one after the other, since it expects them in order
    std::uint32_t contributed = 0;  // contributions it has sent us
    std::uint32_t results = 0;      // results it has sent us
  };
  struct Scan {  // of an op whose values are looked through before any is encoded
    std::uint32_t node = 0, index = 0;  // the next chunk
    bool busy = false;                  // one after the other
  };
  struct Own {  // of an op, chunks that this node owns
    std::uint32_t granted = 0;
    std::uint32_t finished = 0;
    std::uint32_t published = 0;
    std::uint32_t parked = 0;  // or being finished after that
    bool granting = false;     // grants of an op go out one after the other
    Scan scan;
  };
  struct Chunk {
    OpId op = kNoSlot;
    std::uint32_t index = 0;
    std::uint64_t waiting = 0;  // nodes whose contribution is here and not yet added
    std::uint32_t added = 0;    // contributions in the accumulator, our own first
    bool busy = false;          // an action of it is in flight
  };

  struct SentOn {  // a chunk that this node owns and has from the root
    OpId op = kNoSlot;
    std::uint32_t index = 0;
  };

  Action next_sent_on(OpId id);
  Action next_of_chunks(OpId id, const Op& op, const Means& means);
  Action next_grant(OpId id, const Op& op, const Room& room);
  Action next_scan(OpId id, const Op& op, const InputGate& inputs);
  bool is_scanned(OpId id, const Op& op) const noexcept {
    return op.contribution != Contribution::scanned_blocks ||
           (own_[id].scan.node == nodes_ && !own_[id].scan.busy);
  }
  Action next_contribution(OpId id, const Op& op, const InputGate& inputs);
  void free_chunk(ChunkId chunk);

  std::uint32_t self_;
  std::uint32_t nodes_;
  std::uint32_t window_;  // see contribution_window
  OpRows<Peer> peers_;    // of ops that all ranks of this node have submitted
  std::vector<Own> own_;  // by op slot
  std::vector<std::vector<std::uint32_t>> parked_;  // by op slot
  // What has come from a root and goes on to the others, in the order in which it has come. There is
  // room for as many as may be granted; more is made when more wait than ever did.
  std::vector<SentOn> sent_on_;
  std::vector<Chunk> chunks_;
  std::vector<ChunkId> free_;
};

}  // namespace tern::collective
