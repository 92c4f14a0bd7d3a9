#pragma once

#include "plan/plan.h"
#include "shm/layout.h"

namespace tern::plan {

// Every rank gets its share of the reduction of all ranks' values.
inline constexpr Plan kReduceScatter{
    .number = static_cast<std::uint16_t>(shm::OpKind::reduce_scatter),
    .name = "reduce_scatter",
    .work = Work::reduce,
    .parts = Parts::shares,
    .contributors = Ranks::every,
    .receivers = Ranks::sharer,
    .ownership = Ownership::sharer_node,
    .eager = Eager::contributions,
    .may_lose = true,
    .takes_tensor = true,
    .extents =
        [](const Shape& shape) {
          return Extents{whole_op(shape), own_share(shape)};
        },
};

}  // namespace tern::plan
