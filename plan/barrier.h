#pragma once

#include "plan/plan.h"
#include "shm/layout.h"

namespace tern::plan {

// Every rank learns that all have come.
inline constexpr Plan kBarrier{
    .number = static_cast<std::uint16_t>(shm::OpKind::barrier),
    .name = "barrier",
    .extents = [](const Shape&) { return Extents{}; },
    .objection = [](const Shape& shape) -> const char* {
      return shape.count != 0 ? "a barrier has no elements" : nullptr;
    },
};

}  // namespace tern::plan
