#pragma once

#include <algorithm>
#include <cstdint>

namespace tern::daemon {

// How many of one kind a lane has: what its jobs share, and beside that a reserve for users who
// come while others hold theirs and give nothing back.
struct Stock {
  std::uint32_t shared = 0;
  std::uint32_t reserve = 0;

  std::uint32_t all() const noexcept { return shared + reserve; }

  // Of `free`, what a user may take who holds `held` and needs `least` to get on: he may hold
  // shared / reserve times what stays free. So one alone has what is shared, and who comes next
  // finds most of the reserve and leaves the rest to others. Who needs all that is free to get on
  // takes it. (Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet
  // switches", section III.)
  std::uint32_t open_to(std::uint32_t held, std::uint32_t free,
                        std::uint32_t least) const noexcept {
    // As many more that held + more is that often free - more.
    const std::uint64_t open = std::uint64_t{shared} * free, closed = std::uint64_t{reserve} * held;
    const std::uint64_t more = open > closed ? (open - closed) / all() : 0;
    const std::uint32_t needed = least - std::min(least, held);
    return std::min(free, std::max(static_cast<std::uint32_t>(more), needed));
  }
};

}  // namespace tern::daemon
