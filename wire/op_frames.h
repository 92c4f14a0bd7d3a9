#pragma once

// Payloads of the frames that belong to an op.

#include <cstddef>
#include <cstdint>

#include "wire/layout_check.h"

namespace tern::wire {

// What a node says of an op when all its ranks have submitted it. Two announcements of one op must
// be equal in everything but `lead` and what belongs to it, `restart_streams`,
// `rank`, which names the rank that the node speaks for in an error, and
// `eager_bytes`: an all_reduce that a node announces without its values takes the two legs, unless
// what it compresses may be a block here.
inline constexpr std::uint8_t kAnnounceOneLane = 1;  // all chunks of an owner are on one lane
inline constexpr std::uint8_t kAnnounceExempt = 2;
// The node takes the op's legs, though the op would fit in its announcements, and brings no values.
// Of an operation that may lose values. Not compared. Of an all_reduce the same is said by an
// announcement without values.
inline constexpr std::uint8_t kAnnounceDeclines = 4;
// A recipe is written out for an op without a tensor: its blocks may be lossy. Only where all
// hellos have kFeatureLossyMoves.
inline constexpr std::uint8_t kAnnounceLossy = 8;
// What follows is a block, and not elements in their own type. Not compared. Only of an all_reduce
// whose declaration's memory is none or ef, in a group with version 2 of the eager form.
inline constexpr std::uint8_t kAnnounceBlock = 16;
// Of an op that is verified: results stay blocks on the node that says so, and its checksum is of
// these. So all nodes' are. Not compared. Only where all hellos have kFeatureClientBlocks.
inline constexpr std::uint8_t kAnnounceClientBlocks = 32;

// AnnounceBody::memory: the codec memory of a tensor's declaration. `last_values` is xordelta's.
enum class AnnouncedMemory : std::uint8_t {
  none = 0,
  ef = 1,
  diana = 2,
  ef21 = 3,
  last_values = 4
};

struct AnnounceBody {
  std::uint64_t count;  // elements
  std::uint16_t kind;   // shm::OpKind
  std::uint8_t dtype;
  std::uint8_t reduction;
  std::uint8_t role;
  std::uint8_t memory;           // AnnouncedMemory
  std::uint8_t flags;            // kAnnounce...
  std::uint8_t restart_streams;  // 1: this node has lost blocks of the tensor's streams (xordelta,
                                 // diana, ef21); whoever sends one begins it anew
  std::uint32_t root;            // rank, of a kind that has one
  std::uint32_t rank;            // lowest rank of the node that sends this
  std::uint32_t eager_bytes;     // bytes of the contribution that follow; 0 where there is none
  std::uint32_t prescale_bits;   // 0; nobody reads it
  std::uint64_t generation;      // of the tensor's declaration
  std::uint32_t alpha_bits;      // f32, of a shift (diana): both ends must move it alike
  std::uint32_t state_scale_bits;  // f32, of the op under diana and ef21, else 0: as alpha
  std::uint8_t lead;               // the tuner's candidate that this node sends by, plus 1; 0: none
  // Bit 0: for this op only. Bit 1: `lead` is of the tensor's next op, because the client of some
  // node encodes before it hears; where contributions travel with announcements it is so without
  // the bit. Bit 2, of any node: its client has encoded this op before it could hear. Bits 4 to 7:
  // exclusive or of the candidates of contributions and of results, which `lead` is; so 0 where both
  // legs have the same.
  std::uint8_t lead_is_trial;
  std::uint16_t candidates;  // CRC of the list that `lead` counts in
  // CRC32C of counts, never 0; 0: they are equal, or there are none. Of the ranks' shares as a rank
  // gives them. Where each rank has elements for each: of those from ranks of the sending node to
  // ranks of the receiving one, rank by rank; each node gets another.
  std::uint32_t counts_crc;
};
TERN_FORMAT_STRUCT(AnnounceBody, 56);

struct OpFailBody {
  std::int32_t code;   // tern::Errc
  std::uint32_t rank;  // whom the text is about, or 0xffffffff
  char text[184];      // zero-terminated
};
TERN_FORMAT_STRUCT(OpFailBody, 192);

struct VerifyBody {
  std::uint32_t rank;
  // CRC32C of the rank's output on this lane's chunks: those of owner 0 in their order, then those
  // of owner 1, and so on. All of an eager op's. Where a node has said kAnnounceClientBlocks, and
  // the op has chunks: exclusive or of the CRC32C of each result's payload, begun with its number.
  std::uint32_t crc;
};
TERN_FORMAT_STRUCT(VerifyBody, 8);

// Of an op that waits for ranks of the sending node, so that none that has come is blamed.
struct SubmittedBody {
  std::uint64_t ranks;  // bits: those that have submitted it, by their place among the node's ranks
};
TERN_FORMAT_STRUCT(SubmittedBody, 8);

// What a node says of elements that one of its ranks sends to a rank of the receiving node. Who
// sends to whom with which tag stands in the frame's header, so that both ranks can be told though
// the payload is damaged: `tensor` is the sender's rank times 2^32 plus the receiver's, `chunk` the
// tag.
struct SendOfferBody {
  std::uint64_t count;  // elements
  std::uint8_t dtype;
  std::uint8_t eager;  // 1: all elements follow
  // 1: the send writes out a recipe without memory, and each of its pieces is a block. Only to a
  // node whose hello has kFeatureLossySends.
  std::uint8_t lossy;
  std::uint8_t reserved[5];
};
TERN_FORMAT_STRUCT(SendOfferBody, 16);

}  // namespace tern::wire
