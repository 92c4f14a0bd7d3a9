#pragma once

#include "plan/plan.h"
#include "shm/layout.h"

namespace tern::plan {

// One rank receives the rank's values.
inline constexpr Plan kSend{
    .number = static_cast<std::uint16_t>(shm::OpKind::send),
    .name = "send",
    .work = Work::pass,
    .contributors = Ranks::every,
    .loses_without_memory = true,
    .extents =
        [](const Shape& shape) {
          return Extents{whole_op(shape), {}};
        },
    .objection = [](const Shape& shape) -> const char* {
      return shape.root >= shape.ranks ? "the peer of a send must be 0..size-1" : nullptr;
    },
};

}  // namespace tern::plan
