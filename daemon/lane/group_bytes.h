#pragma once

// What a group takes of a daemon's memory beside codec state, so that its user's account pays.

#include <cstdint>

#include "collective/group_ops.h"
#include "daemon/lane/eager_inputs.h"
#include "daemon/lane/lane_ops.h"

namespace tern::daemon {

// Of each lane.
struct GroupBytes {
  std::uint64_t tables = 0;
  std::uint64_t small_ops = 0;  // room for what other nodes send of them, mapped until it is used
};

inline GroupBytes group_bytes(const collective::GroupShape& shape) noexcept {
  // Of each op that a node may be ahead, and of each rank of it: as group_memory_test measures.
  constexpr std::uint64_t kSlotBytes = 1152, kRankBytes = 16;
  const std::uint64_t nodes = shape.nodes(), ranks = shape.local_ranks();
  const std::uint64_t ops = shape.max_ops_in_flight;
  GroupBytes bytes;
  bytes.tables =
      ops * (nodes + 1) * (kSlotBytes + ranks * kRankBytes) + ops * ranks * sizeof(OpRank);
  bytes.small_ops = EagerInputs::slabs_of_node(shape) * nodes * EagerInputs::most_bytes(shape);
  return bytes;
}

}  // namespace tern::daemon
