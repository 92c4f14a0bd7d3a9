#pragma once

#include <cstdint>
#include <cstdlib>

namespace tern::tests {

// The number in an environment variable, by which a person asks a test for another seed or length.
inline std::uint64_t number_of(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

}  // namespace tern::tests
