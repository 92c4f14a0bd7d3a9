#pragma once

#include <unistd.h>

#include <cstdint>
#include <limits>

namespace tern {

// The memory of this machine, in bytes; the largest number where the system does not say.
inline std::uint64_t machine_memory_bytes() noexcept {
  const long pages = ::sysconf(_SC_PHYS_PAGES), page_bytes = ::sysconf(_SC_PAGESIZE);
  if (pages <= 0 || page_bytes <= 0) return std::numeric_limits<std::uint64_t>::max();
  return static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page_bytes);
}

}  // namespace tern
