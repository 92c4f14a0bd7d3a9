#pragma once

// How an op is cut into chunks, as its plan has it. Client and daemon ask the same.

#include <algorithm>
#include <cstdint>

#include "plan/plan.h"
#include "shm/sharding.h"

namespace tern::plan {

// What of it the group and the tensor decide.
struct Place {
  std::uint64_t tensor = 0;    // 0: anonymous
  std::uint64_t sequence = 0;  // of an anonymous op; of what is passed the tag
  std::uint64_t chunk_bytes = 0;
  // A client need not know it: lanes are the same under all versions.
  shm::CutVersion version = shm::CutVersion::full;
  std::uint32_t nodes = 1;
  std::uint32_t lanes = 1;
  bool one_lane = false;
};

// REQUIRES: the plan has no objection to the shape, and does not pass.
inline shm::Sharding cut(const Plan& plan, const Shape& shape, const Place& place) noexcept {
  // Where one node owns all, small chunks would only be more frames.
  const bool even = plan.ownership != Ownership::striped && !plan.has_relays();
  shm::Cut cut{.tensor = place.tensor,
               .sequence = place.sequence,
               .count = shape.count,
               .dtype = shape.dtype,
               .chunk_bytes = place.chunk_bytes,
               .version = even ? std::min(place.version, shm::CutVersion::even) : place.version,
               .nodes = place.nodes,
               .lanes = place.lanes,
               .one_lane = place.one_lane};
  if (plan.has_shares()) {
    cut.shares = shape.ranks;
    cut.largest_share = shape.shares().largest();
  } else if (plan.has_pairs()) {
    cut.shares = shape.ranks * shape.ranks;
    cut.largest_share = shape.pairs().largest();
    // Each rank knows of its own pairs only.
    cut.every_lane = shape.counts != nullptr;
  }
  return shm::make_sharding(cut);
}

// The lanes that an entry is for, as bits. Of what is passed one, on which both ends meet: the
// destination and the tag, which is the sequence, say which.
// REQUIRES: the plan has no objection to the shape.
inline std::uint32_t lanes(const Plan& plan, const Shape& shape, const Place& place) noexcept {
  if (plan.passes()) {
    const std::uint32_t destination = plan.sends() ? shape.root : shape.rank;
    return 1u << shm::lane_of_tag(destination, static_cast<std::uint32_t>(place.sequence),
                                  place.lanes);
  }
  return cut(plan, shape, place).lanes_used();
}

}  // namespace tern::plan
