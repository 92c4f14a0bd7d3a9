#pragma once

#include "plan/plan.h"
#include "shm/layout.h"

namespace tern::plan {

// Every rank gets the reduction of all ranks' values.
inline constexpr Plan kAllReduce{
    .number = static_cast<std::uint16_t>(shm::OpKind::all_reduce),
    .name = "all_reduce",
    .work = Work::reduce,
    .contributors = Ranks::every,
    .receivers = Ranks::every,
    .ownership = Ownership::striped,
    .eager = Eager::contributions,
    .may_lose = true,
    .alike = true,
    .takes_tensor = true,
    .takes_client_blocks = true,
    .extents =
        [](const Shape& shape) {
          return Extents{whole_op(shape), whole_op(shape)};
        },
};

}  // namespace tern::plan
