#pragma once

#include <time.h>

#include <cstddef>
#include <span>

namespace tern::bench {

// Time of this thread on a processor: other work on the machine then costs cache, but not its own
// time.
inline double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

template <typename Function>
double seconds_of(Function&& function) {
  const double begin = thread_seconds();
  function();
  return thread_seconds() - begin;
}

// What a machine's memory allows; codecs are related to it, so that the ratio means the same on
// another machine.
[[gnu::noinline]] inline void pass(std::span<float> sums, std::span<const float> values) {
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += values[i];
}

}  // namespace tern::bench
