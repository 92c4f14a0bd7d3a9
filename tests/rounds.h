#pragma once

#include <cstdlib>

namespace tern::tests {

// How often a test repeats what is random or one of many: all of it, but under a sanitizer a fifth,
// since everything takes five times as long there. `make test-full` sets TERN_TESTS_AT_LENGTH.
inline int rounds(int all) {
#if defined(TERN_SANITIZES)
  if (std::getenv("TERN_TESTS_AT_LENGTH") == nullptr) return all / 5;
#endif
  return all;
}

}  // namespace tern::tests
