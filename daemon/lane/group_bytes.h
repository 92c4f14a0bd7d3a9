#pragma once

// What a lane keeps of a group before its first operation, for which its user's account pays, as
// for the EagerRoom.

#include <cstdint>

#include "collective/group_shape.h"
#include "daemon/lane/lane_ops.h"
#include "daemon/lane/memory_copy.h"

namespace tern::daemon {

inline std::uint64_t group_bytes(const collective::GroupShape& shape) noexcept {
  // Of each op that a node may be ahead, of each rank of it, and of each rank of the group where
  // results are compared: as group_memory_test measures.
  constexpr std::uint64_t kSlotBytes = 1152, kRankBytes = 16, kVerifiedBytes = 24;
  const std::uint64_t ranks = shape.local_ranks(), ops = shape.max_ops_in_flight;
  std::uint64_t of_slot = kSlotBytes + ranks * kRankBytes;
  if (shape.verify) of_slot += kVerifiedBytes + shape.group_size() * sizeof(std::uint32_t);
  return ops * (shape.nodes() + 1) * of_slot + ops * ranks * (sizeof(OpRank) + sizeof(MemoryCopy));
}

}  // namespace tern::daemon
