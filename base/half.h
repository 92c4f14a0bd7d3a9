#pragma once

#include <bit>
#include <cstdint>

#include "base/dtype.h"

// Scalar conversions between f32 and the two 16-bit types, round to nearest even. They are the
// reference for every vector kernel, so they do to a NaN what the processors do: the quiet bit is
// set and the high bits of the payload are kept.
namespace tern {

constexpr std::uint16_t f32_to_bf16(float value) noexcept {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const std::uint32_t quiet = (bits >> 16) | 0x40u;
  return static_cast<std::uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

constexpr float bf16_to_f32(std::uint16_t half) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16);
}

constexpr std::uint16_t f32_to_f16(float value) noexcept {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  // Below 2^-14 the result is subnormal: adding 0.5 leaves a last place of 2^-24, so that the
  // processor's own addition rounds to it.
  const std::uint32_t small =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  const std::uint32_t normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  const std::uint32_t quiet = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  // 0x477ff000 is 65520, halfway between the largest f16 and the power of two above it.
  std::uint32_t half = magnitude < 0x38800000u ? small : normal;
  half = magnitude >= 0x477ff000u ? 0x7c00u : half;
  half = magnitude > 0x7f800000u ? quiet : half;
  return static_cast<std::uint16_t>(sign | half);
}

constexpr float f16_to_f32(std::uint16_t half) noexcept {
  const std::uint32_t sign = (half & 0x8000u) << 16;
  const std::uint32_t magnitude = half & 0x7fffu;
  const std::uint32_t normal = (magnitude << 13) + 0x38000000u;
  const std::uint32_t small = std::bit_cast<std::uint32_t>(
      static_cast<float>(static_cast<std::int32_t>(magnitude)) * 0x1p-24f);
  // An exponent of all ones stays one of all ones. Choices between constants, because compilers
  // vectorize those.
  const std::uint32_t special = magnitude >= 0x7c00u ? 0x38000000u : 0u;
  const std::uint32_t quiet = magnitude > 0x7c00u ? 0x400000u : 0u;
  const std::uint32_t bits = (magnitude < 0x400u ? small : normal + special) | quiet;
  return std::bit_cast<float>(sign | bits);
}

// What a reader sees of `value` once it lies in an array of that type.
constexpr float round_to_dtype(DType dtype, float value) noexcept {
  if (dtype == DType::f16) return f16_to_f32(f32_to_f16(value));
  if (dtype == DType::bf16) return bf16_to_f32(f32_to_bf16(value));
  return value;
}

}  // namespace tern
