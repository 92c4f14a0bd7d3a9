#pragma once

#include <bit>
#include <type_traits>

// What every struct of a shared format must satisfy: no padding, no pointers hidden in padding,
// copyable by memcpy, little-endian. Offsets and sizes are asserted beside each struct.
#define TERN_FORMAT_STRUCT(type, bytes)                          \
  static_assert(sizeof(type) == (bytes));                        \
  static_assert(std::is_trivially_copyable_v<type>);             \
  static_assert(std::is_standard_layout_v<type>);                \
  static_assert(std::has_unique_object_representations_v<type>); \
  static_assert(std::endian::native == std::endian::little)
