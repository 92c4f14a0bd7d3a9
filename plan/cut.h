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

// What of it the op decides. Who knows no op, as whoever moves a tensor's state, says it himself.
struct Portions {
  std::uint64_t count = 0;
  DType dtype = DType::f32;
  std::uint32_t shares = 0;         // that are cut by themselves; 0: none
  std::uint64_t largest_share = 0;  // of these
  bool every_lane = false;
};

inline shm::Sharding cut(const Portions& portions, const Place& place) noexcept {
  return shm::make_sharding({.tensor = place.tensor,
                             .sequence = place.sequence,
                             .count = portions.count,
                             .dtype = portions.dtype,
                             .chunk_bytes = place.chunk_bytes,
                             .version = place.version,
                             .nodes = place.nodes,
                             .lanes = place.lanes,
                             .one_lane = place.one_lane,
                             .shares = portions.shares,
                             .largest_share = portions.largest_share,
                             .every_lane = portions.every_lane});
}

inline shm::Sharding cut(const Plan& plan, const Portions& portions, const Place& place) noexcept {
  Place its = place;
  // Where one node owns all, small chunks would only be more frames.
  const bool is_striped = plan.ownership == Ownership::striped || plan.has_relays();
  if (!is_striped) its.version = std::min(place.version, shm::CutVersion::even);
  return cut(portions, its);
}

// REQUIRES: the plan has no objection to the shape, and does not pass.
inline shm::Sharding cut(const Plan& plan, const Shape& shape, const Place& place) noexcept {
  Portions portions{.count = shape.count, .dtype = shape.dtype};
  if (plan.has_shares()) {
    portions.shares = shape.ranks;
    portions.largest_share = shape.shares().largest();
  } else if (plan.has_pairs()) {
    portions.shares = shape.ranks * shape.ranks;
    portions.largest_share = shape.pairs().largest();
    // Each rank knows of its own pairs only.
    portions.every_lane = shape.counts != nullptr;
  }
  return cut(plan, portions, place);
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
