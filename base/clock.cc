#include "base/clock.h"

#include <ctime>

namespace tern {

std::uint64_t SteadyClock::now_ns() const noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u +
         static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace tern
