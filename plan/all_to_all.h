#pragma once

#include "plan/plan.h"
#include "shm/layout.h"

namespace tern::plan {

// Every rank gets what each has for it, one after the other.
inline constexpr Plan kAllToAll{
    .number = static_cast<std::uint16_t>(shm::OpKind::all_to_all),
    .name = "all_to_all",
    .work = Work::move,
    .parts = Parts::pairs,
    .contributors = Ranks::sharer,
    .receivers = Ranks::partner,
    .ownership = Ownership::sharer_node,
    .eager = Eager::values,
    .loses_without_memory = true,
    .extents =
        [](const Shape& shape) {
          const Pairs pairs = shape.pairs();
          return Extents{{pair_inputs_begin(shape.rank), pairs.sent()},
                         {pair_outputs_begin(shape.rank), pairs.received()}};
        },
};

}  // namespace tern::plan
