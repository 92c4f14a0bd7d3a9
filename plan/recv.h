#pragma once

#include "plan/plan.h"
#include "shm/layout.h"

namespace tern::plan {

// The rank receives one rank's values, or those of whoever sends first.
inline constexpr Plan kRecv{
    .number = static_cast<std::uint16_t>(shm::OpKind::recv),
    .name = "recv",
    .work = Work::pass,
    .receivers = Ranks::every,
    .loses_without_memory = true,
    .extents =
        [](const Shape& shape) {
          return Extents{{}, whole_op(shape)};
        },
    .objection = [](const Shape& shape) -> const char* {
      return shape.root >= shape.ranks && shape.root != shm::kAnySource
                 ? "the peer of a recv must be 0..size-1, or any source"
                 : nullptr;
    },
};

}  // namespace tern::plan
