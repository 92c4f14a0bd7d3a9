#pragma once

#include <cstdlib>

namespace tern::tests {

// Whether a test should do less of what is random or one of many: under a sanitizer, where
// everything takes five times as long. `make test-full` sets TERN_TESTS_AT_LENGTH.
inline bool abridged() {
#if defined(TERN_SANITIZES)
  return std::getenv("TERN_TESTS_AT_LENGTH") == nullptr;
#else
  return false;
#endif
}

// By how much longer a program may take under a sanitizer.
#if defined(TERN_SANITIZES)
inline constexpr int kSlowdown = 5;
#else
inline constexpr int kSlowdown = 1;
#endif

// How often a test repeats that: all of it, or a fifth.
inline int rounds(int all) { return abridged() ? all / 5 : all; }

}  // namespace tern::tests
