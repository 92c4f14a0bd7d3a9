#pragma once

#include <cstdint>
#include <string>

namespace tern::daemon {

// Where the kernel says what a process may have; others in tests.
struct MemoryFiles {
  std::string own_group = "/proc/self/cgroup";
  std::string groups = "/sys/fs/cgroup";
};

// How much memory this process may have: that of the machine, or the least `memory.max` of its
// control group (cgroups(7), version 2) and those above, which is a unit's `MemoryMax`.
std::uint64_t memory_limit_bytes(const MemoryFiles& files = {});

}  // namespace tern::daemon
