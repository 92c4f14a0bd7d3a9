#pragma once

#include "plan/plan.h"
#include "shm/layout.h"

namespace tern::plan {

// The root gets sums that the other nodes have made, each of its own chunks: as many bytes reach
// the root as the op has, and not those of every node.
inline constexpr Plan kRelayedReduce{
    .number = static_cast<std::uint16_t>(shm::OpKind::reduce),
    .name = "reduce",
    .work = Work::reduce,
    .contributors = Ranks::every,
    .receivers = Ranks::root,
    .ownership = Ownership::others,
    .has_root = true,
    .may_lose = true,
    .takes_tensor = true,
    .extents =
        [](const Shape& shape) {
          return Extents{whole_op(shape), at_root(shape)};
        },
};

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
    .relayed = &kRelayedReduce,
    .extents =
        [](const Shape& shape) {
          return Extents{whole_op(shape), at_root(shape)};
        },
};

}  // namespace tern::plan
