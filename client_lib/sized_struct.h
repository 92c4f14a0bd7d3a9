#pragma once

// Structs of a caller that was compiled against another tern.h, older or newer: they have a size of
// their own, and this version knows a part of them or more than them (semantics 6).

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "client_lib/include/tern/tern.h"
#include "client_lib/last_error.h"

namespace tern::client_lib {

// The bytes of a struct in the first header that had it. They never change: later fields go behind,
// and leave no padding, which nobody sets.
template <typename Struct>
inline constexpr std::size_t kFirstBytes = 0;
template <>
inline constexpr std::size_t kFirstBytes<tern_connect_options> = 40;
template <>
inline constexpr std::size_t kFirstBytes<tern_join_options> = 40;
template <>
inline constexpr std::size_t kFirstBytes<tern_group_info> = 32;
template <>
inline constexpr std::size_t kFirstBytes<tern_tensor_options> = 56;
template <>
inline constexpr std::size_t kFirstBytes<tern_tensor_stats> = 168;
template <>
inline constexpr std::size_t kFirstBytes<tern_op> = 96;
template <>
inline constexpr std::size_t kFirstBytes<tern_received> = 16;
template <>
inline constexpr std::size_t kFirstBytes<tern_push_pull_options> = 56;
template <>
inline constexpr std::size_t kFirstBytes<tern_split_options> = 32;
template <>
inline constexpr std::size_t kFirstBytes<tern_batch> = 32;
template <>
inline constexpr std::size_t kFirstBytes<tern_block_layout> = 152;

// More than any version will have: such a struct_size was never set.
inline constexpr std::size_t kMaxStructBytes = 4096;

// By pointer: a reference would promise that all of it is there.
template <typename Struct>
tern_status check_size(const Struct* given, const char* name) {
  static_assert(kFirstBytes<Struct> > 0 && sizeof(Struct) >= kFirstBytes<Struct>);
  if (given->struct_size >= kFirstBytes<Struct> && given->struct_size <= kMaxStructBytes) {
    return TERN_OK;
  }
  set_error_detail(std::string(name) + ".struct_size is " + std::to_string(given->struct_size) +
                   ", which no tern.h has: initialise the struct with its _INIT macro");
  return TERN_ERR_INVALID_ARGUMENT;
}

// What the caller gave, with zero in fields that its header does not have. Refused: a field in use
// that this version does not know.
template <typename Struct>
tern_status read_struct(const Struct* given, const char* name, Struct& known) {
  if (const tern_status status = check_size(given, name); status != TERN_OK) return status;
  const std::size_t size = given->struct_size;
  const void* const begin = given;
  known = {};
  std::memcpy(&known, begin, std::min(size, sizeof known));
  const auto* const bytes = static_cast<const unsigned char*>(begin);
  if (std::any_of(bytes + std::min(size, sizeof known), bytes + size,
                  [](unsigned char byte) { return byte != 0; })) {
    set_error_detail(std::string(name) +
                     " has a field set that this libtern does not know: leave it zero, or use the "
                     "libtern of the tern.h that the program was compiled with");
    return TERN_ERR_UNSUPPORTED;
  }
  return TERN_OK;
}

// Fills as much of the caller's struct as its header has; zero in what this version does not know.
// REQUIRES: check_size(taken).
template <typename Struct>
void write_struct(Struct known, Struct* taken) {
  const std::size_t size = taken->struct_size;
  const std::size_t common = std::min(size, sizeof known);
  known.struct_size = taken->struct_size;
  auto* const begin = static_cast<unsigned char*>(static_cast<void*>(taken));
  std::memcpy(begin, &known, common);
  std::memset(begin + common, 0, size - common);
}

}  // namespace tern::client_lib
