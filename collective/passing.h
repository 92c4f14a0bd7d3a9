#pragma once

// What the mailbox of a lane is told, and what it asks the lane to do.

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "collective/op.h"
#include "collective/slots.h"

namespace tern::collective {

using PassId = std::uint32_t;   // slot of a send or recv of a rank of this node
using OfferId = std::uint32_t;  // slot of an offer that has come to a rank of this node

inline constexpr std::uint32_t kAnySource = 0xffffffff;

// Who sends to whom, and what: ranks of the group.
struct Envelope {
  std::uint32_t source = 0;
  std::uint32_t destination = 0;
  std::uint32_t tag = 0;
  DType dtype = DType::f32;
  std::uint64_t count = 0;  // elements
  // Of a send: its pieces are blocks, which may have lost values. Of a recv: it takes such ones.
  bool lossy = false;

  std::uint64_t bytes() const noexcept { return count * dtype_bytes(dtype); }
};

// Of a send the envelope is what travels. Of a recv the source may be kAnySource, and the count is
// what there is room for.
struct Passing {
  bool sends = false;
  std::uint32_t local_rank = 0;
  Envelope envelope;
  std::uint64_t now_ns = 0;
  bool in_pieces = false;  // a send of which no element may travel with its offer
  bool arriving = false;   // a send whose elements come later: see Mailbox::arrived()
  std::uint16_t kind = 0;  // the number of its plan, for whoever reads of it
};

enum class PassAction : std::uint8_t {
  none,
  offer,  // send the offer of `pass`, with its elements if it is eager
  // Send bytes [offset, offset + bytes) of `pass`. Of one whose pieces are blocks the next comes
  // when this one is done, so that they are sent in their order.
  piece,
  withdraw,  // tell the receiver's node that `pass` has failed here
  accept,    // tell the sender's node that `pass` waits for the elements of `offer`
  deliver,   // the elements that came with `offer` go to the memory of `pass`
  copy,      // bytes [offset, offset + bytes) go from the send `from` to the memory of `pass`
  close,     // tell the sender's node how `offer` has ended; what is kept of its elements is free
  complete,  // tell the rank how `pass` has ended
};

struct PassStep {
  PassAction action = PassAction::none;
  PassId pass = kNoSlot;
  PassId from = kNoSlot;
  OfferId offer = kNoSlot;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

// How a pass has ended.
struct PassOutcome {
  Errc code = Errc::ok;
  std::uint32_t about_rank = kNoRank;
  char text[184] = {};

  void set(const Failure& failure) noexcept;
  Failure failure() const noexcept { return {code, about_rank, text}; }
};

enum class PassState : std::uint8_t {
  waiting,    // for the other side
  moving,     // it has met the other side
  withdrawn,  // a send that has failed here, and waits for the receiver's last word
  ended,      // waits until nothing uses its memory
};

struct Pass {
  Passing what;
  PassState state = PassState::waiting;
  bool offered = false;  // a send: the receiver's node has been told
  bool eager = false;
  std::uint32_t node = 0;     // of the other side: the receiver's, or whose offer a recv has met
  OfferId offer = kNoSlot;    // that a recv has met; of a send to this node, its own
  std::uint64_t ready = 0;    // bytes of a send that may be read, from the first on
  std::uint64_t moved = 0;    // bytes of a send that pieces have taken
  bool making = false;        // a send: one of its pieces is becoming a block
  std::uint32_t holders = 0;  // pieces, and the offer it has met, that need its memory or outcome
  std::uint32_t source = 0;   // of a recv: who has sent
  std::uint64_t elements = 0;
  PassOutcome outcome;

  // How far it was at the last look that found it further, and when that was.
  struct Progress {
    PassState state = PassState::waiting;
    std::uint64_t moved = 0;
    std::uint32_t holders = 0;
    bool operator==(const Progress&) const = default;
  };
  Progress seen;
  std::uint64_t seen_ns = 0;
};

}  // namespace tern::collective
