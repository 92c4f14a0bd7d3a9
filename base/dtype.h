#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tern {

// The numbers are frozen: the C ABI, shared memory and the wire carry them. Those commented as
// reserved have a number now so that adding them later breaks nobody.
enum class DType : std::uint8_t {
  f32 = 0,
  f64 = 1,
  f16 = 2,
  bf16 = 3,
  i64 = 4,
  i32 = 5,
  u8 = 6,
  // Reserved: boolean = 7, i8 = 8, i16 = 9, fp8_e4m3 = 10, fp8_e5m2 = 11, c64 = 12, c128 = 13.
};

enum class Reduction : std::uint8_t { sum = 0, average = 1, min = 2, max = 3, product = 4 };

// What a tensor means to the application; decides whether a lossy recipe is allowed
// (docs/glossary.md).
enum class Role : std::uint8_t { exact = 0, gradient = 1, delta = 2, weights = 3 };

// Bytes per element; 0 for a number that is not (yet) a type.
constexpr std::size_t dtype_bytes(DType dtype) noexcept {
  switch (dtype) {
    case DType::f64:
    case DType::i64:
      return 8;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::f16:
    case DType::bf16:
      return 2;
    case DType::u8:
      return 1;
  }
  return 0;
}

constexpr bool dtype_is_float(DType dtype) noexcept {
  return dtype == DType::f32 || dtype == DType::f64 || dtype == DType::f16 || dtype == DType::bf16;
}

constexpr std::string_view dtype_name(DType dtype) noexcept {
  switch (dtype) {
    case DType::f32:
      return "f32";
    case DType::f64:
      return "f64";
    case DType::f16:
      return "f16";
    case DType::bf16:
      return "bf16";
    case DType::i64:
      return "i64";
    case DType::i32:
      return "i32";
    case DType::u8:
      return "u8";
  }
  return "unknown";
}

constexpr std::string_view reduction_name(Reduction reduction) noexcept {
  switch (reduction) {
    case Reduction::sum:
      return "sum";
    case Reduction::average:
      return "average";
    case Reduction::min:
      return "min";
    case Reduction::max:
      return "max";
    case Reduction::product:
      return "product";
  }
  return "unknown";
}

constexpr std::string_view role_name(Role role) noexcept {
  switch (role) {
    case Role::exact:
      return "exact";
    case Role::gradient:
      return "gradient";
    case Role::delta:
      return "delta";
    case Role::weights:
      return "weights";
  }
  return "unknown";
}

constexpr bool role_may_be_lossy(Role role) noexcept {
  return role == Role::gradient || role == Role::delta;
}

}  // namespace tern
