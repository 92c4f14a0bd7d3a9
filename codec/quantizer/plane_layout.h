#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/random.h"
#include "codec/quantizer/bit_order.h"
#include "codec/quantizer/float_bits.h"

// natural and bitmask cut floats into planes: one part of every value of a group, then the next
// part of every value, so that an entropy coder behind them sees runs of alike bytes. Private to
// codec/quantizer/.
namespace tern::codec::quantizer {

// Elements whose planes lie together. Few enough that a group and its planes stay in L1, and every
// group but the last is whole, so that groups are quantized one by one.
inline constexpr std::size_t kPlaneGroup = 4096;

// natural: a plane of exponents, then one of signs.
constexpr std::size_t natural_bytes(std::size_t elements) noexcept {
  return elements + packed_bytes(elements, 1);
}

// The exponent of one of the two powers of two around |value|: the upper one with the probability
// (|value| - lower) / (upper - lower), which is mantissa / 2^23. That holds for subnormals too,
// whose neighbours are 0 (exponent 0) and 2^-126 (exponent 1).
constexpr std::uint8_t natural_exponent(float value, std::uint32_t random) noexcept {
  const std::int32_t magnitude = magnitude_bits(value);
  const std::int32_t mantissa = magnitude & 0x7fffff;
  const std::int32_t up = static_cast<std::int32_t>(random >> 9) < mantissa ? 1 : 0;
  return static_cast<std::uint8_t>((magnitude >> 23) + up);
}

// bitmask: the sign, the exponent and `keep` mantissa bits, from the top.
constexpr unsigned bitmask_bits(unsigned keep) noexcept { return 9 + keep; }

// Whole byte planes, then the rest of the bits as codes narrower than a byte.
constexpr std::size_t bitmask_bytes(std::size_t elements, unsigned keep) noexcept {
  const unsigned bits = bitmask_bits(keep);
  return bits / 8 * elements + packed_bytes(elements, bits % 8);
}

struct MantissaCut {
  unsigned keep = 23;
  bool rounding = true;  // to nearest even instead of towards zero

  constexpr std::uint32_t dropped() const noexcept { return 23 - keep; }
  constexpr std::uint32_t cut(std::uint32_t bits) const noexcept {
    const std::uint32_t odd = (bits >> dropped()) & 1u;
    const std::uint32_t half = (1u << dropped()) >> 1;
    // Half a unit less one, and one more if the kept part is odd: a carry into the exponent is
    // right. With nothing dropped there is nothing to add.
    const std::uint32_t bias = rounding && half != 0 ? half - 1 + odd : 0u;
    return (bits + bias) >> dropped() << dropped();
  }
};

}  // namespace tern::codec::quantizer
