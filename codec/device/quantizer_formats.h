#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "base/dtype.h"
#include "base/half.h"
#include "codec/device/chunk_sums.h"
#include "codec/device/simt.h"
#include "codec/quantizer/integer_rule.h"
#include "codec/quantizer/small_float.h"
#include "wire/block.h"

// The formats of element_encode.cuh: what the elements of a block share, how one becomes a code and
// what the code stands for. The arithmetic is that of codec/quantizer.
namespace tern::codec::device {

// Symmetric integers of 4 or 8 bits, to nearest.
template <unsigned bits>
struct IntegerFormat {
  using Grid = quantizer::IntegerGrid;
  static constexpr unsigned kBits = bits;
  static constexpr bool kHasSide = true;
  static constexpr wire::QuantizerId kKind = wire::QuantizerId::integer;
  static constexpr std::uint8_t kHeaderBits = bits;
  static constexpr std::int32_t kLevel = quantizer::largest_level(bits);
  using FourCodes = std::conditional_t<bits == 8, std::uint32_t, std::uint16_t>;

  static TERN_DEVICE bool is_scale(float scale) {
    return quantizer::valid_scale(scale, static_cast<float>(kLevel));
  }
  static TERN_DEVICE bool is_code(std::uint32_t code) {
    return code <= static_cast<std::uint32_t>(2 * kLevel);
  }
  static TERN_DEVICE Grid grid_from(float step) { return {step, 1.0f, 0.0f}; }

  static TERN_DEVICE Grid grid_of(std::uint32_t largest) {
    return quantizer::integer_grid(static_cast<std::int32_t>(largest), kLevel);
  }
  static TERN_DEVICE std::uint32_t side_of(const Grid& grid) {
    return std::bit_cast<std::uint32_t>(grid.step);
  }
  static TERN_DEVICE std::uint32_t code_of(float value, const Grid& grid) {
    return quantizer::nearest_code(value, grid, kLevel);
  }
  static TERN_DEVICE float value_of(std::uint32_t code, const Grid& grid) {
    return quantizer::integer_value(static_cast<std::uint8_t>(code), grid.step, kLevel);
  }
};

template <typename Format, wire::QuantizerId kind>
struct Fp8Format {
  using Grid = quantizer::PowerScale;
  static constexpr unsigned kBits = 8;
  static constexpr bool kHasSide = true;
  static constexpr wire::QuantizerId kKind = kind;
  static constexpr std::uint8_t kHeaderBits = 0;
  using FourCodes = std::uint32_t;

  static TERN_DEVICE bool is_scale(float scale) {
    return quantizer::valid_scale(scale, Format::largest());
  }
  static TERN_DEVICE bool is_code(std::uint32_t code) {
    return Format::magnitude_of(static_cast<std::uint8_t>(code)) <= Format::kLargestCode;
  }
  static TERN_DEVICE Grid grid_from(float scale) { return {scale, 1.0f}; }

  static TERN_DEVICE Grid grid_of(std::uint32_t largest) {
    return quantizer::fp8_scale<Format>(static_cast<std::int32_t>(largest));
  }
  static TERN_DEVICE std::uint32_t side_of(const Grid& grid) {
    return std::bit_cast<std::uint32_t>(grid.scale);
  }
  static TERN_DEVICE std::uint32_t code_of(float value, const Grid& grid) {
    return Format::encode(value * grid.inverse);
  }
  static TERN_DEVICE float value_of(std::uint32_t code, const Grid& grid) {
    return Format::decode(static_cast<std::uint8_t>(code)) * grid.scale;
  }
};

using Fp8E4M3 = Fp8Format<quantizer::E4M3, wire::QuantizerId::fp8_e4m3>;
using Fp8E5M2 = Fp8Format<quantizer::E5M2, wire::QuantizerId::fp8_e5m2>;

// No scale; a codec of its own.
struct Bf16Format {
  struct Grid {};
  static constexpr unsigned kBits = 16;
  static constexpr bool kHasSide = false;
  static constexpr wire::QuantizerId kKind = wire::QuantizerId::bf16;
  static constexpr std::uint8_t kHeaderBits = 0;
  using FourCodes = std::uint64_t;

  static TERN_DEVICE bool is_scale(float) { return true; }
  static TERN_DEVICE bool is_code(std::uint32_t) { return true; }
  static TERN_DEVICE Grid grid_from(float) { return {}; }

  static TERN_DEVICE Grid grid_of(std::uint32_t) { return {}; }
  static TERN_DEVICE std::uint32_t side_of(const Grid&) { return 0; }
  static TERN_DEVICE std::uint32_t code_of(float value, const Grid&) { return f32_to_bf16(value); }
  static TERN_DEVICE float value_of(std::uint32_t code, const Grid&) {
    return bf16_to_f32(static_cast<std::uint16_t>(code));
  }
};

}  // namespace tern::codec::device
