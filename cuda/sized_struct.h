#pragma once

// Structs of a caller that was compiled against another version of tern/cuda.h, as
// client_lib/sized_struct.h has it for those of tern.h.

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

#include "cuda/include/tern/cuda.h"
#include "cuda/last_error.h"

namespace tern::cuda {

// The bytes of a struct in the first header that had it. They never change.
template <typename Struct>
inline constexpr std::size_t kFirstBytes = 0;
template <>
inline constexpr std::size_t kFirstBytes<tern_cuda_options> = 24;
template <>
inline constexpr std::size_t kFirstBytes<tern_cuda_op> = 32;
template <>
inline constexpr std::size_t kFirstBytes<tern_cuda_stats> = 80;

inline constexpr std::size_t kMaxStructBytes = 4096;

template <typename Struct>
Status check_size(const Struct* given, const char* name) {
  static_assert(sizeof(Struct) >= kFirstBytes<Struct>);
  if (given->struct_size >= kFirstBytes<Struct> && given->struct_size <= kMaxStructBytes) return {};
  return fail(Errc::invalid_argument,
              std::string(name) + ".struct_size is " + std::to_string(given->struct_size) +
                  ", which no tern/cuda.h has: initialise the struct with its _INIT macro");
}

// Zero in what the caller's header does not have; refused: a field in use that is not known here.
template <typename Struct>
Status read_struct(const Struct* given, const char* name, Struct& known) {
  if (auto sized = check_size(given, name); !sized) return sized;
  const std::size_t size = given->struct_size;
  const void* const begin = given;
  known = {};
  std::memcpy(&known, begin, std::min(size, sizeof known));
  const auto* const bytes = static_cast<const unsigned char*>(begin);
  if (std::any_of(bytes + std::min(size, sizeof known), bytes + size,
                  [](unsigned char byte) { return byte != 0; })) {
    return fail(Errc::unsupported,
                std::string(name) +
                    " has a field set that this libtern_cuda does not know: leave it zero, or "
                    "use the libtern_cuda of the header that the program was compiled with");
  }
  return {};
}

// Fills as much of the caller's struct as its header has. REQUIRES: check_size(taken).
template <typename Struct>
void write_struct(Struct known, Struct* taken) {
  const std::size_t size = taken->struct_size;
  const std::size_t common = std::min(size, sizeof known);
  known.struct_size = taken->struct_size;
  auto* const begin = static_cast<unsigned char*>(static_cast<void*>(taken));
  std::memcpy(begin, &known, common);
  std::memset(begin + common, 0, size - common);
}

}  // namespace tern::cuda
