#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "collective/slots.h"
#include "shm/sharding.h"

namespace tern::collective {

// How contributions travel that fit in an announcement. Agreed when a group is joined, because the
// bits of results and what codec state means depend on it (docs/adr/0044, 0046).
enum class EagerForm : std::uint8_t {
  elements = 1,  // as they are; what is compressed takes its legs
  blocks = 2,    // of an all_reduce also as blocks
  chunks = 3,    // and where the whole does not fit, to each owner its chunk
};
inline constexpr EagerForm kNewestEagerForm = EagerForm::chunks;

// How a large op with a root travels among more than two nodes if it loses nothing. Agreed when a
// group is joined, because the order of additions depends on it (docs/adr/0055).
enum class RootedForm : std::uint8_t {
  direct = 1,   // between the root and each other node
  relayed = 2,  // by way of other nodes, of which each has a part
};
inline constexpr RootedForm kNewestRootedForm = RootedForm::relayed;

// What the state machine of a group on one lane must know of the group.
struct GroupShape {
  std::uint32_t node = 0;  // this node
  std::uint32_t lane = 0;
  std::uint32_t lanes = 1;
  std::uint64_t chunk_bytes = 256 << 10;
  shm::CutVersion cut = shm::CutVersion::full;
  std::uint64_t eager_bytes = 64 << 10;  // see eager_limit
  EagerForm eager_form = EagerForm::elements;
  RootedForm rooted_form = RootedForm::direct;
  std::uint32_t max_ops_in_flight = 128;
  std::uint32_t active_chunks = 64;       // most chunks of this group that may be granted at once
  std::uint32_t contribution_window = 0;  // 0: as many as the function of this name says
  bool verify = false;
  std::vector<std::vector<std::uint32_t>> ranks;  // of each node, ascending

  std::uint32_t nodes() const noexcept { return static_cast<std::uint32_t>(ranks.size()); }
  std::uint32_t group_size() const noexcept {
    std::size_t size = 0;
    for (const auto& of_node : ranks) size += of_node.size();
    return static_cast<std::uint32_t>(size);
  }
  std::uint32_t largest_node() const noexcept {  // ranks of the node that has most
    std::size_t most = 0;
    for (const auto& of_node : ranks) most = std::max(most, of_node.size());
    return static_cast<std::uint32_t>(most);
  }
  std::uint32_t local_ranks() const noexcept {
    return static_cast<std::uint32_t>(ranks[node].size());
  }
  // Whether this lane counts the op: one of those that have chunks of it.
  bool counts(std::uint64_t tensor, std::uint64_t sequence) const noexcept {
    return shm::first_lane(tensor, sequence, lanes) == lane;
  }
  // kNoSlot: the rank is on no node.
  std::uint32_t node_of_rank(std::uint32_t rank) const noexcept {
    for (std::uint32_t i = 0; i < nodes(); ++i) {
      if (std::find(ranks[i].begin(), ranks[i].end(), rank) != ranks[i].end()) return i;
    }
    return kNoSlot;
  }
};

// The largest op that travels eagerly among so many nodes, where `agreed` is what all of them
// allow. A node sends an eager op to every other, so the limit is on what it sends in all; a few
// packets to each are always worth the round trip that they save.
constexpr std::uint64_t eager_limit(std::uint64_t agreed, std::uint32_t nodes) noexcept {
  constexpr std::uint64_t kFewPackets = 8 << 10;
  const std::uint64_t each = nodes > 2 ? agreed / (nodes - 1) : agreed;
  return each > kFewPackets ? each : agreed < kFewPackets ? agreed : kFewPackets;
}

// How an op is cut that goes to its owners with its announcements, if it fits there.
struct AnnouncedCut {
  std::uint64_t count = 0;           // elements of the op, at least one
  std::uint64_t chunk_elements = 0;  // of every chunk but the last
  std::size_t element_bytes = 0;
};
// Whether each node owns one chunk at most, and that fits in an announcement to its owner.
constexpr bool chunks_fit(const AnnouncedCut& cut, std::uint64_t eager_bytes,
                          std::uint32_t nodes) noexcept {
  return nodes > 1 && (cut.count - 1) / cut.chunk_elements < nodes &&
         cut.chunk_elements * cut.element_bytes <= eager_bytes;
}

// How many raw contributions to one owner a node may be ahead of the owner's results. Between two
// nodes there is no one to be fair to. More of them together send 2 MiB ahead, which keeps a
// datacentre's link busy, and two chunks to each owner at least: one under way, one being added.
constexpr std::uint32_t contribution_window(std::uint64_t chunk_bytes,
                                            std::uint32_t nodes) noexcept {
  if (nodes <= 2) return 0xffffffff;
  const std::uint64_t window = (std::uint64_t{2} << 20) / (chunk_bytes * (nodes - 1));
  return window > 2 ? static_cast<std::uint32_t>(window) : 2;
}

}  // namespace tern::collective
