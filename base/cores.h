#pragma once

#include <cstdint>

namespace tern {

// The cores that the calling thread may run on, which a container, `AllowedCPUs=` or taskset make
// fewer than the machine has. At least 1.
std::uint32_t usable_cores() noexcept;

}  // namespace tern
