#pragma once

// Structs of a caller that was compiled against another version of a header, older or newer: they
// have a size of their own, in their first field, and this version knows a part of them or more
// than them.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "base/result.h"

namespace tern {

// The bytes of a struct in the first header that had it. They never change: later fields go behind,
// and leave no padding, which nobody sets. Each library says it of its own structs.
template <typename Struct>
inline constexpr std::size_t kFirstBytes = 0;

// More than any version will have: such a struct_size was never set.
inline constexpr std::size_t kMaxStructBytes = 4096;

// By pointer: a reference would promise that all of it is there.
template <typename Struct>
Status check_struct_size(const Struct* given, const char* name) {
  static_assert(kFirstBytes<Struct> > 0 && sizeof(Struct) >= kFirstBytes<Struct>);
  if (given->struct_size >= kFirstBytes<Struct> && given->struct_size <= kMaxStructBytes) return {};
  return fail(Errc::invalid_argument,
              std::string(name) + ".struct_size is " + std::to_string(given->struct_size) +
                  ", which no header has: initialise the struct with its _INIT macro");
}

// What the caller gave, with zero in fields that its header does not have. unsupported: a field in
// use that this version does not know.
template <typename Struct>
Status read_sized(const Struct* given, const char* name, Struct& known) {
  if (Status sized = check_struct_size(given, name); !sized) return sized;
  const std::size_t size = given->struct_size;
  const void* const begin = given;
  known = {};
  std::memcpy(&known, begin, std::min(size, sizeof known));
  const auto* const bytes = static_cast<const unsigned char*>(begin);
  if (std::any_of(bytes + std::min(size, sizeof known), bytes + size,
                  [](unsigned char byte) { return byte != 0; })) {
    return fail(Errc::unsupported,
                std::string(name) +
                    " has a field set that this library does not know: leave it zero, or use the "
                    "library of the header that the program was compiled with");
  }
  return {};
}

// Fills as much of the caller's struct as its header has; zero in what this version does not know.
// REQUIRES: check_struct_size(taken).
template <typename Struct>
void write_sized(Struct known, Struct* taken) {
  const std::size_t size = taken->struct_size;
  const std::size_t common = std::min(size, sizeof known);
  known.struct_size = taken->struct_size;
  auto* const begin = static_cast<unsigned char*>(static_cast<void*>(taken));
  std::memcpy(begin, &known, common);
  std::memset(begin + common, 0, size - common);
}

}  // namespace tern
