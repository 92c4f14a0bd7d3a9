#pragma once

#include <cstdint>

namespace tern {

// The cores that the calling thread may run on, at least 1. A cpuset (of a container,
// `AllowedCPUs=`) and taskset make them fewer than the machine has; a share of their time
// (`CPUQuota=`) does not.
std::uint32_t usable_cores() noexcept;

}  // namespace tern
