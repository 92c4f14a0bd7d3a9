#pragma once

#include "plan/plan.h"
#include "shm/layout.h"

namespace tern::plan {

// Every rank gets its share of the root's values.
inline constexpr Plan kScatter{
    .number = static_cast<std::uint16_t>(shm::OpKind::scatter),
    .name = "scatter",
    .work = Work::move,
    .parts = Parts::shares,
    .contributors = Ranks::root,
    .receivers = Ranks::sharer,
    .ownership = Ownership::root_node,
    .eager = Eager::values,
    .has_root = true,
    .takes_tensor = true,
    .extents =
        [](const Shape& shape) {
          return Extents{at_root(shape), own_share(shape)};
        },
};

}  // namespace tern::plan
