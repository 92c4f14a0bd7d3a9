#pragma once

#include <cstdint>

#include "wire/layout_check.h"

namespace tern::wire {

// One node's part of a tensor's codec state, for checkpoints: this header, then a record for each
// chunk in order. A record is the sender's floats; under diana and ef21 it begins with the counts
// of blocks (u64) of the sender's stream and of each stream that the node receives, and the shifts
// of these follow the sender's, in the order of the senders' node numbers. With counts these come
// last, a u64 for each rank. docs/codecs.md has the page.
struct StatePartHeader {
  std::uint32_t magic;
  std::uint16_t version;
  std::uint8_t memory;  // codec::Memory: 0 none, 1 ef, 2 diana, 3 ef21
  std::uint8_t dtype;
  std::uint32_t node;  // whose part it is
  std::uint32_t nodes;
  std::uint64_t count;           // elements of the tensor
  std::uint64_t chunk_elements;  // with nodes and spread this is the map of owners
  std::uint64_t spread;
  // f32. Of a shift, how far it moves. Under ef, how much of what nodes contribute a result's
  // residual stands for: 1 where results are sums, the group's size where they are averages.
  std::uint32_t alpha_bits;
  std::uint32_t counts_crc;  // of the kind, as announced
  std::uint64_t bytes;       // of the whole part
  std::uint16_t kind;        // a plan's number, of an operation with one leg; else 0
  // Of a kind that has one: rank plus 1; 0: not known. Where kind is 0: 1 of a tensor whose
  // all_reduce travels with its announcements, so that nobody owns a chunk of it.
  std::uint16_t root;
  std::uint32_t placement;  // of the kind: a checksum of which ranks are on which node

  bool has_one_leg() const noexcept { return kind != 0; }
};
TERN_FORMAT_STRUCT(StatePartHeader, 64);

inline constexpr std::uint32_t kStatePartMagic = 0x31505354;  // "TSP1"

}  // namespace tern::wire
