#pragma once

#include <cstdint>
#include <string>

namespace tern::daemon {

// How many mappings the kernel lets a process have; `path` is another one in tests.
std::uint64_t mapping_limit(const std::string& path = "/proc/sys/vm/max_map_count");

}  // namespace tern::daemon
