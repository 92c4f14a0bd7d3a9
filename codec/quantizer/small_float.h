#pragma once

#include <bit>
#include <cstdint>

#include "codec/quantizer/float_bits.h"

// The floating-point formats of 8 and 4 bits of the Open Compute Project ("OCP 8-bit Floating Point
// Specification" 1.0 and "OCP Microscaling Formats (MX) Specification" 1.0), one element at a time
// and without a branch, so that plain loops over these functions vectorize. Private to
// codec/quantizer/.
namespace tern::codec::quantizer {

// `Largest` is the code of the largest finite number; those above it are infinities and NaNs.
template <unsigned ExponentBits, unsigned MantissaBits, std::uint8_t Largest, int LargestExponent>
struct SmallFloat {
  static constexpr unsigned kBits = 1 + ExponentBits + MantissaBits;
  static constexpr std::uint32_t kSign = 1u << (kBits - 1);
  static constexpr std::int32_t kLargestCode = Largest;
  static constexpr int kLargestExponent = LargestExponent;

  static constexpr int kBias = (1 << (ExponentBits - 1)) - 1;
  static constexpr unsigned kDropped = 23 - MantissaBits;  // bits of an f32 mantissa
  static constexpr std::int32_t kRebias = (127 - kBias) << MantissaBits;
  static constexpr std::int32_t kSmallestNormal = (128 - kBias) << 23;       // as an f32's bits
  static constexpr float kStep = power_of_two(128u - kBias - MantissaBits);  // of subnormals
  // In its binade an f32 has steps of kStep, so that adding it rounds to a subnormal.
  static constexpr float kAligner = power_of_two(128u - kBias - MantissaBits + 23u);

  // To nearest even; beyond the largest number to the largest number. Requires: value is finite.
  static constexpr std::uint8_t encode(float value) noexcept {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
    const std::int32_t magnitude = magnitude_bits(value);
    const std::int32_t odd = (magnitude >> kDropped) & 1;
    const std::int32_t normal =
        ((magnitude + ((1 << (kDropped - 1)) - 1) + odd) >> kDropped) - kRebias;
    const std::int32_t subnormal =
        std::bit_cast<std::int32_t>(std::bit_cast<float>(magnitude) + kAligner) -
        std::bit_cast<std::int32_t>(kAligner);
    std::int32_t code = magnitude < kSmallestNormal ? subnormal : normal;
    code = code > kLargestCode ? kLargestCode : code;
    const std::uint32_t sign = (bits >> (32 - kBits)) & kSign;
    return static_cast<std::uint8_t>(static_cast<std::uint32_t>(code) | sign);
  }

  static constexpr std::int32_t magnitude_of(std::uint8_t code) noexcept {
    return code & static_cast<std::int32_t>(kSign - 1);
  }

  // Requires: magnitude_of(code) <= kLargestCode.
  static constexpr float decode(std::uint8_t code) noexcept {
    const std::int32_t magnitude = magnitude_of(code);
    const std::int32_t normal = (magnitude + kRebias) << kDropped;
    const std::int32_t subnormal =
        std::bit_cast<std::int32_t>(static_cast<float>(magnitude) * kStep);
    const std::int32_t bits = magnitude < (1 << MantissaBits) ? subnormal : normal;
    const std::uint32_t sign = (code & kSign) << (32 - kBits);
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) | sign);
  }

  static constexpr float largest() noexcept { return decode(Largest); }
};

using E4M3 = SmallFloat<4, 3, 0x7e, 8>;   // 448; no infinity, one NaN of each sign
using E5M2 = SmallFloat<5, 2, 0x7b, 15>;  // 57344
using E2M1 = SmallFloat<2, 1, 0x07, 2>;   // 6; neither infinity nor NaN

// What values are multiplied by before they are encoded, and codes after they are decoded: powers
// of two, so that neither rounds.
struct PowerScale {
  float scale;
  float inverse;
};

// fp8: the smallest power of two that brings the largest magnitude to at most Format::largest(). A
// power of two loses nothing against amax/largest, because the relative precision of a floating
// format does not depend on where in its range the values lie; in return both multiplications are
// exact and a value that fits the format comes back as it was. Held between 2^-126, so that the
// inverse is finite, and the largest scale that can be undone without overflow, where magnitudes
// above 1.75 * 2^127 saturate.
template <typename Format>
constexpr PowerScale fp8_scale(std::int32_t largest_magnitude) noexcept {
  const std::int32_t largest_mantissa = magnitude_bits(Format::largest()) & 0x7fffff;
  const std::int32_t above = (largest_magnitude & 0x7fffff) > largest_mantissa ? 1 : 0;
  std::int32_t exponent = (largest_magnitude >> 23) - Format::kLargestExponent + above;
  exponent = exponent < 1 ? 1 : exponent;
  exponent = exponent > 254 - Format::kLargestExponent ? 254 - Format::kLargestExponent : exponent;
  return {power_of_two(static_cast<std::uint32_t>(exponent)),
          power_of_two(static_cast<std::uint32_t>(254 - exponent))};
}

// MX: E = floor(log2(largest magnitude)) - Format::kLargestExponent, not below -127, as an E8M0
// byte, E + 127.
template <typename Format>
constexpr std::uint8_t mx_scale_byte(std::int32_t largest_magnitude) noexcept {
  const std::int32_t exponent = (largest_magnitude >> 23) - Format::kLargestExponent;
  return static_cast<std::uint8_t>(exponent < 0 ? 0 : exponent);
}

// The largest byte that mx_scale_byte() returns; with it Format::largest() is still finite.
template <typename Format>
inline constexpr std::int32_t kMxLargestScale = 254 - Format::kLargestExponent;

// Requires: byte <= kMxLargestScale.
constexpr PowerScale mx_scale(std::uint8_t byte) noexcept {
  const std::uint32_t subnormal = byte == 0 ? 0x400000u : 0u;  // 2^-127
  return {std::bit_cast<float>((static_cast<std::uint32_t>(byte) << 23) | subnormal),
          power_of_two(254u - byte)};
}

}  // namespace tern::codec::quantizer
