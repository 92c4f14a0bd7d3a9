#pragma once

#include <algorithm>
#include <cstdint>

#include "base/dtype.h"
#include "base/random.h"
#include "wire/block.h"

namespace tern::shm {

// How large the chunks of an op are. Agreed when a group is joined, because codec state, scales and
// logs of choices belong to chunks.
enum class CutVersion : std::uint8_t {
  full = 1,  // as large as a chunk may be; the rest is in the last one
  even = 2,  // alike, so that owners have as much as each other
  fine = 3,  // alike, also where an op of one round has less than kChunkUnit for each
};
inline constexpr CutVersion kNewestCut = CutVersion::fine;

// Under `even` a chunk has a multiple of so many elements: learning scales are per so many. Under
// `fine` one that has fewer has a multiple of kSmallUnit.
inline constexpr std::uint64_t kChunkUnit = 4096;
inline constexpr std::uint64_t kSmallUnit = 256;

// Elements of every chunk but the last where `count` are cut in rounds of `columns` chunks, of
// which each has at most `most`. REQUIRES: most and columns >= 1.
constexpr std::uint64_t elements_of_chunk(CutVersion version, std::uint64_t count,
                                          std::uint64_t most, std::uint64_t columns) noexcept {
  if (version == CutVersion::full || count == 0) return most;
  const std::uint64_t rounds = (count - 1) / (most * columns) + 1;
  const std::uint64_t even = (count - 1) / (rounds * columns) + 1;
  const bool small = version == CutVersion::fine && rounds == 1 && even < kChunkUnit;
  const std::uint64_t unit = std::min(small ? kSmallUnit : kChunkUnit, most);
  return std::min((even + unit - 1) / unit * unit, most);
}

// How an op is cut and spread. Client and daemon must agree on it (the client writes an entry to
// every lane that has a chunk), so it lies beside the layout.
//
// Chunks are numbered in rounds, of which each has a chunk in every column. Of an op that is cut as
// a whole a round has as many columns as there are nodes, and the chunks lie one after the other in
// the op. Where each rank's share is cut by itself, or what each has for each, a column is one of
// these, and a short one has no chunks in the last rounds.
//
// Chunk c of a whole op belongs to node (c + spread) % columns: owners start at different nodes, so
// that nobody waits for node 0. Round r runs on lane (r + spread) % lanes, so that every lane sees
// all owners. The owner must not depend on the lane count, because the order of addition does on
// the owner.
//
// The version of the cut says where the borders between chunks lie. Rounds, and so lanes, are the
// same under all versions: a client need not know which one its group has.
struct Sharding {
  std::uint64_t count;           // elements
  std::uint64_t chunk_elements;  // of every chunk but the last; of shares: the most of any chunk
  CutVersion version;
  std::uint64_t chunk_count;  // 0 without elements; of shares: as if all were as the largest
  std::uint64_t spread;       // from the tensor id, or the sequence of an anonymous op
  std::uint32_t columns;
  std::uint32_t lanes;
  bool one_lane;    // all chunks on one lane, for a scale over the whole tensor
  bool every_lane;  // nobody knows how many rounds there are

  std::uint64_t rounds() const noexcept { return (chunk_count + columns - 1) / columns; }
  std::uint32_t lane(std::uint64_t chunk) const noexcept {
    const std::uint64_t round = one_lane ? 0 : chunk / columns;
    return static_cast<std::uint32_t>((round + spread) % lanes);
  }

  // Where shares, or what each rank has for each, are cut by themselves: the elements of every chunk
  // but the last of one that has `elements`.
  std::uint64_t chunk_elements_of(std::uint64_t elements) const noexcept {
    return elements_of_chunk(version, elements, chunk_elements, 1);
  }

  // ---- Of an op that is cut as a whole ----
  std::uint32_t owner(std::uint64_t chunk) const noexcept {
    return static_cast<std::uint32_t>((chunk + spread) % columns);
  }
  std::uint64_t chunk_begin(std::uint64_t chunk) const noexcept { return chunk * chunk_elements; }
  std::uint64_t chunk_size(std::uint64_t chunk) const noexcept {
    return std::min(chunk_elements, count - chunk_begin(chunk));
  }

  // Whether lane has any chunk. A barrier, and an op without elements, runs on the lane of chunk 0.
  bool uses_lane(std::uint32_t lane_index) const noexcept {
    if (every_lane) return true;
    const std::uint64_t rounds =
        one_lane || chunk_count == 0
            ? 1
            : std::min<std::uint64_t>((chunk_count - 1) / columns + 1, lanes);
    return (lane_index + lanes - lane(0)) % lanes < rounds;
  }
  // All that have one, as bits.
  std::uint32_t lanes_used() const noexcept {
    std::uint32_t used = 0;
    for (std::uint32_t i = 0; i < lanes; ++i) {
      if (uses_lane(i)) used |= 1u << i;
    }
    return used;
  }
};

// The bits of a tensor's id that choose the owners of its chunks; so few that chunk + spread cannot
// wrap.
inline constexpr std::uint64_t kSpreadMask = 0x7fffffff;

inline constexpr std::uint64_t spread_of(std::uint64_t tensor, std::uint64_t sequence) noexcept {
  return (tensor != 0 ? tensor : sequence) & kSpreadMask;
}

// The lane of chunk 0, which every op uses: where each is counted once.
inline constexpr std::uint32_t first_lane(std::uint64_t tensor, std::uint64_t sequence,
                                          std::uint32_t lanes) noexcept {
  return static_cast<std::uint32_t>(spread_of(tensor, sequence) % lanes);
}

// A chunk is one block, which has room for so many elements and no more.
inline std::uint64_t most_chunk_elements(std::uint64_t chunk_bytes, DType dtype) noexcept {
  return std::min<std::uint64_t>(chunk_bytes / dtype_bytes(dtype), wire::kMaxBlockElements);
}

// What decides how an op is cut and spread.
struct Cut {
  std::uint64_t tensor = 0;    // 0: anonymous
  std::uint64_t sequence = 0;  // of an anonymous op
  std::uint64_t count = 0;     // elements
  DType dtype = DType::f32;
  std::uint64_t chunk_bytes = 0;
  CutVersion version = CutVersion::full;
  std::uint32_t nodes = 1;
  std::uint32_t lanes = 1;
  bool one_lane = false;
  std::uint32_t shares = 0;         // how many are cut by themselves; 0: the op is cut as a whole
  std::uint64_t largest_share = 0;  // elements
  bool every_lane = false;
};

// REQUIRES: dtype valid, chunk_bytes >= 64, nodes and lanes >= 1.
inline Sharding make_sharding(const Cut& cut) noexcept {
  Sharding sharding{};
  sharding.count = cut.count;
  sharding.version = cut.version;
  sharding.chunk_elements = most_chunk_elements(cut.chunk_bytes, cut.dtype);
  const std::uint64_t cut_as_one = cut.shares != 0 ? cut.largest_share : cut.count;
  sharding.columns = cut.shares != 0 ? cut.shares : cut.nodes;
  if (cut.shares == 0) {
    sharding.chunk_elements =
        elements_of_chunk(cut.version, cut.count, sharding.chunk_elements, cut.nodes);
  }
  sharding.chunk_count = (cut_as_one + sharding.chunk_elements - 1) / sharding.chunk_elements;
  if (cut.shares != 0) sharding.chunk_count *= cut.shares;
  sharding.spread = spread_of(cut.tensor, cut.sequence);
  sharding.lanes = cut.lanes;
  sharding.one_lane = cut.one_lane;
  sharding.every_lane = cut.every_lane;
  return sharding;
}

// The lane on which what is sent to a rank with a tag meets its recv, on all nodes.
inline std::uint32_t lane_of_tag(std::uint32_t destination, std::uint32_t tag,
                                 std::uint32_t lanes) noexcept {
  return static_cast<std::uint32_t>(mix64(std::uint64_t{destination} << 32 | tag) % lanes);
}

}  // namespace tern::shm
