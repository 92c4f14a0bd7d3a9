#pragma once

#include "plan/plan.h"
#include "shm/layout.h"

namespace tern::plan {

// The root gets the reduction of all ranks' values.
inline constexpr Plan kReduce{
    .number = static_cast<std::uint16_t>(shm::OpKind::reduce),
    .name = "reduce",
    .work = Work::reduce,
    .contributors = Ranks::every,
    .receivers = Ranks::root,
    .ownership = Ownership::root_node,
    .eager = Eager::contributions,
    .has_root = true,
    .may_lose = true,
    .takes_tensor = true,
    .extents =
        [](const Shape& shape) {
          return Extents{whole_op(shape), at_root(shape)};
        },
};

}  // namespace tern::plan
