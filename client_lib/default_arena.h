#pragma once

#include <algorithm>
#include <cstdint>

namespace tern::client_lib {

// The size of an arena for which the caller names none, on a machine with so much memory. The
// daemon counts arenas whole, and a node seldom has a single client.
constexpr std::uint64_t default_arena_bytes(std::uint64_t machine_bytes) noexcept {
  constexpr std::uint64_t kUsual = std::uint64_t{1} << 30;
  constexpr std::uint64_t kWholePages = std::uint64_t{2} << 20;
  return std::min(kUsual,
                  std::max(machine_bytes / 4 / kWholePages, std::uint64_t{1}) * kWholePages);
}

}  // namespace tern::client_lib
