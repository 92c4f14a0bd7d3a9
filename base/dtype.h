#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tern {

// The numbers are frozen: the C ABI, shared memory and the wire carry them.
enum class DType : std::uint8_t {
  f32 = 0,
  f64 = 1,
  f16 = 2,
  bf16 = 3,
  i64 = 4,
  i32 = 5,
  u8 = 6,
  boolean = 7,  // a byte: 0 is false, all others are true
  i8 = 8,
  i16 = 9,
  fp8_e4m3 = 10,  // moved, never reduced; so is the next
  fp8_e5m2 = 11,
  c64 = 12,  // two f32: real part, imaginary part
  c128 = 13,
  u16 = 14,
  u32 = 15,
  u64 = 16,
};
inline constexpr DType kLastDType = DType::u64;

enum class Reduction : std::uint8_t {
  sum = 0,
  average = 1,
  min = 2,
  max = 3,
  product = 4,
  bit_and = 5,  // these three: bit by bit of integers, as truth values of booleans
  bit_or = 6,
  bit_xor = 7,
};
inline constexpr Reduction kLastReduction = Reduction::bit_xor;

// What a tensor means to the application; decides whether a lossy recipe is allowed
// (docs/glossary.md).
enum class Role : std::uint8_t { exact = 0, gradient = 1, delta = 2, weights = 3 };

// Bytes per element; 0 for a number that is not (yet) a type.
constexpr std::size_t dtype_bytes(DType dtype) noexcept {
  switch (dtype) {
    case DType::c128:
      return 16;
    case DType::f64:
    case DType::i64:
    case DType::u64:
    case DType::c64:
      return 8;
    case DType::f32:
    case DType::i32:
    case DType::u32:
      return 4;
    case DType::f16:
    case DType::bf16:
    case DType::i16:
    case DType::u16:
      return 2;
    case DType::u8:
    case DType::i8:
    case DType::boolean:
    case DType::fp8_e4m3:
    case DType::fp8_e5m2:
      return 1;
  }
  return 0;
}

constexpr bool dtype_is_float(DType dtype) noexcept {
  return dtype == DType::f32 || dtype == DType::f64 || dtype == DType::f16 || dtype == DType::bf16;
}
constexpr bool dtype_is_complex(DType dtype) noexcept {
  return dtype == DType::c64 || dtype == DType::c128;
}
constexpr bool dtype_is_fp8(DType dtype) noexcept {
  return dtype == DType::fp8_e4m3 || dtype == DType::fp8_e5m2;
}
constexpr bool dtype_is_integer(DType dtype) noexcept {
  return dtype_bytes(dtype) != 0 && !dtype_is_float(dtype) && !dtype_is_complex(dtype) &&
         !dtype_is_fp8(dtype) && dtype != DType::boolean;
}

// Null, or a sentence: why values of this type cannot be reduced so.
constexpr const char* objection(Reduction reduction, DType dtype) noexcept {
  if (dtype_is_fp8(dtype)) return "fp8 values can be moved but not reduced; convert them to f16";
  switch (reduction) {
    case Reduction::sum:
    case Reduction::product:
      return dtype != DType::boolean ? nullptr
                                     : "booleans have no sum and no product; use and, or, xor";
    case Reduction::average:
      return dtype_is_float(dtype) || dtype_is_complex(dtype)
                 ? nullptr
                 : "average is for floating-point and complex types only";
    case Reduction::min:
    case Reduction::max:
      return dtype_is_float(dtype) || dtype_is_integer(dtype)
                 ? nullptr
                 : "min and max are for floating-point types and integers only";
    case Reduction::bit_and:
    case Reduction::bit_or:
    case Reduction::bit_xor:
      return dtype_is_integer(dtype) || dtype == DType::boolean
                 ? nullptr
                 : "and, or and xor are for integers and booleans only";
  }
  return "unknown reduction";
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
    case DType::boolean:
      return "bool";
    case DType::i8:
      return "i8";
    case DType::i16:
      return "i16";
    case DType::fp8_e4m3:
      return "fp8_e4m3";
    case DType::fp8_e5m2:
      return "fp8_e5m2";
    case DType::c64:
      return "c64";
    case DType::c128:
      return "c128";
    case DType::u16:
      return "u16";
    case DType::u32:
      return "u32";
    case DType::u64:
      return "u64";
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
    case Reduction::bit_and:
      return "and";
    case Reduction::bit_or:
      return "or";
    case Reduction::bit_xor:
      return "xor";
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
