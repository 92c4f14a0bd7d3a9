#pragma once

#include "plan/plan.h"
#include "shm/layout.h"

namespace tern::plan {

// Every rank gets the shares of all ranks, one after the other.
inline constexpr Plan kAllGather{
    .number = static_cast<std::uint16_t>(shm::OpKind::all_gather),
    .name = "all_gather",
    .work = Work::move,
    .parts = Parts::shares,
    .contributors = Ranks::sharer,
    .receivers = Ranks::every,
    .ownership = Ownership::sharer_node,
    .eager = Eager::values,
    .may_lose = true,
    .alike = true,
    .takes_tensor = true,
    .extents =
        [](const Shape& shape) {
          return Extents{own_share(shape), whole_op(shape)};
        },
};

}  // namespace tern::plan
