#pragma once

// How long an op would take. A lane encodes, sends, receives and decodes on one thread
// while the wire moves what it has sent before, so an op takes the longer of the lane's work and
// the wire's, plus what cannot overlap: half a round trip for each hop and one chunk through all
// stages.

#include <cstdint>

namespace tern::tuner {

inline constexpr double kNsPerSecond = 1e9;

// By which ways values go in an op of some kind.
struct OpLegs {
  bool reduce = true;     // contributions go to the owners, who add them
  bool broadcast = true;  // owners send what they have to all
  // One node owns all. Else each owns as much as the others.
  bool one_owner = false;

  friend bool operator==(const OpLegs&, const OpLegs&) = default;
};

struct OpShape {
  OpLegs legs;
  std::uint64_t bytes = 0;  // of the tensor, in its own type
  std::uint64_t chunk_bytes = 256 << 10;
  std::uint64_t eager_bytes = 0;  // raw ops up to this travel in one hop
  bool eager_blocks = false;      // and what is added at all nodes, however it is sent
  // Of what is added and sent back, owners hear their chunks with the announcements.
  bool announces_chunks = false;
  // A program of this node encodes before the op what the node contributes, and decodes results.
  bool has_client_blocks = false;
  std::uint32_t nodes = 2;
  std::uint32_t lanes = 1;

  bool takes_one_hop(bool raw) const noexcept {
    const bool all_add = legs.reduce && legs.broadcast && !legs.one_owner;
    return bytes <= eager_bytes && (raw || (eager_blocks && all_add));
  }
  // Then nobody grants or contributes.
  bool is_contributed_at_once() const noexcept { return announces_chunks && legs == OpLegs{}; }
  // As an all_reduce does that does not take one hop whatever its recipe.
  bool goes_to_owners_and_back() const noexcept {
    return legs == OpLegs{} && !takes_one_hop(false);
  }
};

// Of a candidate, for each byte of the tensor.
struct CodecCost {
  double encode_ns = 0.0;
  double decode_ns = 0.0;
  double wire = 1.0;  // bytes of the block
};

// By the recipe of contributions and by that of results. Of a leg that an op does not have the
// recipe counts for nothing.
struct PairCost {
  CodecCost reduce;
  CodecCost broadcast;
};

// Of what a lane does beside coding.
struct LaneCost {
  double byte_ns = 0.4;      // for each byte that is sent or received: checksum and the carrier
  double chunk_ns = 4000.0;  // for each block that is sent or received
};

struct Prediction {
  double total_ns = 0.0;
  double work_ns = 0.0;  // of each lane
  double wire_ns = 0.0;
  double fixed_ns = 0.0;  // what overlaps with nothing
};

// What an op by a pair of recipes is made of, whatever the link: the same formula for many rates.
struct OpParts {
  double work_ns = 0.0;      // of each lane
  double peer_bytes = 0.0;   // that go to each peer
  double chunk_ns = 0.0;     // of one chunk through all stages but the wire
  double chunk_bytes = 0.0;  // of its blocks, on all legs
  double fixed_ns = 0.0;

  Prediction at(double ns_per_byte) const noexcept {
    Prediction result;
    result.work_ns = work_ns;
    result.wire_ns = peer_bytes * ns_per_byte;
    const double through = chunk_ns + chunk_bytes * ns_per_byte;
    const double half = 0.5 * (work_ns + result.wire_ns);
    result.fixed_ns = fixed_ns + (through < half ? through : half);
    result.total_ns = (work_ns > result.wire_ns ? work_ns : result.wire_ns) + result.fixed_ns;
    return result;
  }
};

OpParts parts_of(const OpShape& shape, const PairCost& codecs, const LaneCost& lane,
                 double round_trip_ns) noexcept;
// Of an op in one hop, for which contributions alone are sent.
OpParts parts_of_eager(const OpShape& shape, const CodecCost& codec, const LaneCost& lane,
                       double round_trip_ns) noexcept;

struct LinkCost {
  double rate;  // bytes per second to the slowest peer, with all peers sending
  double round_trip_ns;
};

// By the same pair of recipes on all nodes.
Prediction predict(const OpShape& shape, const PairCost& codecs, const LaneCost& lane,
                   const LinkCost& link) noexcept;

}  // namespace tern::tuner
