#pragma once

#include <cstdint>
#include <string>

namespace tern::daemon {

// How many mappings the kernel lets a process have.
struct MappingLimit {
  std::uint64_t count = 65'530;  // the kernel's, where nobody has changed it
  bool is_known = false;         // read, and not supposed
};

// Not known where /proc has processes alone, as under the unit's `ProcSubset=pid`; `path` is
// another one in tests.
MappingLimit mapping_limit(const std::string& path = "/proc/sys/vm/max_map_count");

}  // namespace tern::daemon
