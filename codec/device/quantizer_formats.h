#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "base/dtype.h"
#include "base/half.h"
#include "codec/device/chunk_sums.h"
#include "codec/device/scale_index.h"
#include "codec/device/simt.h"
#include "codec/quantizer/integer_rule.h"
#include "codec/quantizer/small_float.h"
#include "wire/block.h"

// The formats of element_encode.cuh: what the elements of a block share, how one becomes a code and
// what the code stands for. The results are those of codec/quantizer, bit for bit, in fewer steps;
// tests/codec/device/quantizer_formats_test.cc compares them.
namespace tern::codec::device {

// What a value becomes, and what that stands for.
struct Rounded {
  std::uint32_t code;
  float value;
};

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
  // The one code that does not exist has all bits.
  static TERN_DEVICE bool are_codes(FourCodes codes) {
    const std::uint32_t all = codes;
    if constexpr (bits == 8) return (all & ((all & 0x7f7f7f7fu) + 0x01010101u) & 0x80808080u) == 0;
    return (all & all >> 1 & all >> 2 & all >> 3 & 0x1111u) == 0;
  }

  static TERN_DEVICE Grid grid_of(std::uint32_t largest) {
    return quantizer::integer_grid(static_cast<std::int32_t>(largest), kLevel);
  }
  static TERN_DEVICE std::uint32_t side_of(const Grid& grid) {
    return std::bit_cast<std::uint32_t>(grid.step);
  }
  // As quantizer::nearest_code(). Without the aligner the sum is the level as a float.
  static TERN_DEVICE Rounded round(float value, const Grid& grid) {
    constexpr float kAligner = 0x1.8p23f;
    const float aligned = (value * grid.lift) * grid.inverse + kAligner;
    const std::uint32_t level =
        std::bit_cast<std::uint32_t>(aligned) - std::bit_cast<std::uint32_t>(kAligner);
    return {level + static_cast<std::uint32_t>(kLevel), (aligned - kAligner) * grid.step};
  }
  // As quantizer::integer_value(). In its binade an f32 has steps of 1, so that a code in the last
  // bits is added to 2^23.
  static TERN_DEVICE float value_of(std::uint32_t code, float step) {
    const float raised = std::bit_cast<float>(0x4b000000u | code);
    return (raised - (0x1p23f + static_cast<float>(kLevel))) * step;
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
  // None of an infinity or a NaN: with what is added, only those above the largest code carry.
  static TERN_DEVICE bool are_codes(FourCodes codes) {
    constexpr std::uint32_t kUpToCarry = (0x7fu - Format::kLargestCode) * 0x01010101u;
    return (((codes & 0x7f7f7f7fu) + kUpToCarry) & 0x80808080u) == 0;
  }

  static TERN_DEVICE Grid grid_of(std::uint32_t largest) {
    return quantizer::fp8_scale<Format>(static_cast<std::int32_t>(largest));
  }
  static TERN_DEVICE std::uint32_t side_of(const Grid& grid) {
    return std::bit_cast<std::uint32_t>(grid.scale);
  }
  // As Format::encode() and Format::decode(). In the binade of the aligner an f32 has the steps that
  // the format has in the binade of the value, so that the sum is rounded to a number of steps.
  static TERN_DEVICE Rounded round(float value, const Grid& grid) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(value * grid.inverse);
    const std::uint32_t sign = bits & 0x80000000u;
    const std::uint32_t magnitude = smaller(bits & 0x7fffffffu, kLargestBits);
    const std::uint32_t binade = larger(magnitude & kInfinityBits, kSmallestNormal);
    const std::uint32_t aligner_bits = binade + (Format::kDropped << 23);
    const float aligner = std::bit_cast<float>(aligner_bits);
    const float aligned = std::bit_cast<float>(magnitude) + aligner;
    const std::uint32_t steps = std::bit_cast<std::uint32_t>(aligned) - aligner_bits;
    const std::uint32_t code = steps + ((binade - kSmallestNormal) >> Format::kDropped);
    const std::uint32_t rounded = std::bit_cast<std::uint32_t>(aligned - aligner) | sign;
    return {code | sign >> 24, std::bit_cast<float>(rounded) * grid.scale};
  }
  // As Format::decode(). The bits of a magnitude are those of an f32 whose exponent lacks the
  // difference of the biases, also where it is subnormal.
  static TERN_DEVICE float value_of(std::uint32_t code, float scale) {
    const std::int32_t moved = static_cast<std::int32_t>(code << 24) >> (24 - Format::kDropped);
    constexpr std::uint32_t kMask = 0x80000000u | 0x7fu << Format::kDropped;
    const float lacking = std::bit_cast<float>(static_cast<std::uint32_t>(moved) & kMask);
    return lacking * quantizer::power_of_two(254u - Format::kBias) * scale;
  }

 private:
  static constexpr std::uint32_t kLargestBits = std::bit_cast<std::uint32_t>(Format::largest());
  static constexpr std::uint32_t kSmallestNormal = Format::kSmallestNormal;

  static TERN_DEVICE std::uint32_t smaller(std::uint32_t a, std::uint32_t b) {
    return a < b ? a : b;
  }
  static TERN_DEVICE std::uint32_t larger(std::uint32_t a, std::uint32_t b) {
    return a < b ? b : a;
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
  static TERN_DEVICE bool are_codes(FourCodes) { return true; }

  static TERN_DEVICE Grid grid_of(std::uint32_t) { return {}; }
  static TERN_DEVICE std::uint32_t side_of(const Grid&) { return 0; }
  // As f32_to_bf16(). Requires: value is finite.
  static TERN_DEVICE Rounded round(float value, const Grid&) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
    return {rounded >> 16, std::bit_cast<float>(rounded & 0xffff0000u)};
  }
  static TERN_DEVICE float value_of(std::uint32_t code, float) {
    return bf16_to_f32(static_cast<std::uint16_t>(code));
  }
};

}  // namespace tern::codec::device
