#pragma once

#include <cstdlib>
#include <iostream>
#include <string_view>
#include <utility>

#include "base/result.h"

// For tests that can run on a GPU. What makes them meaningless there ends the program.
namespace tern::gpu {

inline constexpr int kTestSkipped = 77;  // of ctest

// Whether TERN_TEST_TARGET says so: it is emulation, as without it, or gpu.
inline bool tests_run_on_gpu() {
  const char* const name = std::getenv("TERN_TEST_TARGET");
  if (name == nullptr || name == std::string_view("emulation")) return false;
  if (name == std::string_view("gpu")) return true;
  std::cerr << "TERN_TEST_TARGET is \"" << name << "\"; it can be emulation or gpu\n";
  std::exit(EXIT_FAILURE);
}

template <typename T>
T needed_for_test(Result<T> made) {
  if (made) return std::move(*made);
  std::cerr << "cannot test on a GPU: " << made.error().text << '\n';
  std::exit(made.error().code == Errc::unsupported ? kTestSkipped : EXIT_FAILURE);
}

}  // namespace tern::gpu
