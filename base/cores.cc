#include "base/cores.h"

#include <sched.h>

#include <algorithm>
#include <thread>

namespace tern {

std::uint32_t usable_cores() noexcept {
  cpu_set_t allowed;
  // It fails where the machine has more cores than the set has bits.
  const int count = ::sched_getaffinity(0, sizeof(allowed), &allowed) == 0
                        ? CPU_COUNT(&allowed)
                        : static_cast<int>(std::thread::hardware_concurrency());
  return static_cast<std::uint32_t>(std::max(count, 1));
}

}  // namespace tern
