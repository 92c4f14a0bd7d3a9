#pragma once

#include "plan/plan.h"
#include "shm/layout.h"

namespace tern::plan {

// Every other node gets a part of the root's values from the root, which it sends on to the rest:
// as many bytes leave the root as the op has, and not those for every node.
inline constexpr Plan kRelayedBroadcast{
    .number = static_cast<std::uint16_t>(shm::OpKind::broadcast),
    .name = "broadcast",
    .work = Work::move,
    .contributors = Ranks::root,
    .receivers = Ranks::every,
    .ownership = Ownership::others,
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
    .relayed = &kRelayedBroadcast,
    .extents =
        [](const Shape& shape) {
          return Extents{at_root(shape), whole_op(shape)};
        },
};

}  // namespace tern::plan
