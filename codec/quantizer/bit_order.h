#pragma once

#include <cstddef>
#include <cstdint>

// The order of codes narrower than a byte, for every quantizer that has some. Private to
// codec/quantizer/.
//
// Little-endian: code i of b bits takes bits b*i to b*i + b - 1 of the string in which bit j of the
// string is bit j%8 of byte j/8. So eight codes take b bytes, the first code is in the low bits of
// the first byte, and unused bits of the last byte are zero.
namespace tern::codec::quantizer {

constexpr std::size_t packed_bytes(std::size_t codes, unsigned bits) noexcept {
  return codes / 8 * bits + (codes % 8 * bits + 7) / 8;
}

// One code at a time: the reference, and what is left after the last eight. `out` is zero before.
inline void put_code(std::uint8_t* out, std::size_t index, unsigned bits, unsigned code) noexcept {
  const std::size_t first = index * bits;
  const unsigned shifted = code << (first % 8);
  out[first / 8] = static_cast<std::uint8_t>(out[first / 8] | (shifted & 0xffu));
  if ((shifted >> 8) != 0) {
    out[first / 8 + 1] = static_cast<std::uint8_t>(out[first / 8 + 1] | (shifted >> 8));
  }
}

inline unsigned get_code(const std::uint8_t* in, std::size_t index, unsigned bits) noexcept {
  const std::size_t first = index * bits;
  unsigned word = in[first / 8];
  if (first % 8 + bits > 8) word |= static_cast<unsigned>(in[first / 8 + 1]) << 8;
  return (word >> (first % 8)) & ((1u << bits) - 1);
}

}  // namespace tern::codec::quantizer
