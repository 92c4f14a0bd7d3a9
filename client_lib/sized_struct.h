#pragma once

// The structs of tern.h whose sizes tell the caller's version (semantics 6).

#include "base/sized_struct.h"
#include "client_lib/include/tern/tern.h"
#include "client_lib/last_error.h"

namespace tern {

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
template <>
inline constexpr std::size_t kFirstBytes<tern_encoded> = 40;
template <>
inline constexpr std::size_t kFirstBytes<tern_device_report> = 104;

}  // namespace tern

namespace tern::client_lib {

inline tern_status said(const Status& status) {
  if (status) return TERN_OK;
  set_error_detail(status.error().text);
  return static_cast<tern_status>(status.error().code);
}

template <typename Struct>
tern_status check_size(const Struct* given, const char* name) {
  return said(check_struct_size(given, name));
}

template <typename Struct>
tern_status read_struct(const Struct* given, const char* name, Struct& known) {
  return said(read_sized(given, name, known));
}

// REQUIRES: check_size(taken).
template <typename Struct>
void write_struct(const Struct& known, Struct* taken) {
  write_sized(known, taken);
}

}  // namespace tern::client_lib
