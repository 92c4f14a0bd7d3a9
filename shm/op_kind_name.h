#pragma once

#include <cstdint>

#include "shm/layout.h"

namespace tern::shm {

// For people: errors, reports, traces. Of a number that is no kind: "unknown".
constexpr const char* op_kind_name(std::uint64_t kind) noexcept {
  switch (static_cast<OpKind>(kind)) {
    case OpKind::all_reduce:
      return "all_reduce";
    case OpKind::broadcast:
      return "broadcast";
    case OpKind::barrier:
      return "barrier";
    case OpKind::cancel:
      break;
  }
  return "unknown";
}

}  // namespace tern::shm
