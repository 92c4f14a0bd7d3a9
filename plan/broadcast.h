#pragma once

#include "plan/plan.h"
#include "shm/layout.h"

namespace tern::plan {

// Every rank gets the root's values.
inline constexpr Plan kBroadcast{
    .number = static_cast<std::uint16_t>(shm::OpKind::broadcast),
    .name = "broadcast",
    .work = Work::move,
    .contributors = Ranks::root,
    .receivers = Ranks::every,
    .ownership = Ownership::root_node,
    .eager = Eager::values,
    .has_root = true,
    .may_lose = true,
    .loses_if_asked = true,
    .alike = true,
    .takes_tensor = true,
    .extents =
        [](const Shape& shape) {
          return Extents{at_root(shape), whole_op(shape)};
        },
};

}  // namespace tern::plan
