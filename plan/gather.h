#pragma once

#include "plan/plan.h"
#include "shm/layout.h"

namespace tern::plan {

// The root gets the shares of all ranks, one after the other.
inline constexpr Plan kGather{
    .number = static_cast<std::uint16_t>(shm::OpKind::gather),
    .name = "gather",
    .work = Work::move,
    .parts = Parts::shares,
    .contributors = Ranks::sharer,
    .receivers = Ranks::root,
    .ownership = Ownership::sharer_node,
    .eager = Eager::values,
    .has_root = true,
    .takes_tensor = true,
    .extents =
        [](const Shape& shape) {
          return Extents{own_share(shape), at_root(shape)};
        },
};

}  // namespace tern::plan
