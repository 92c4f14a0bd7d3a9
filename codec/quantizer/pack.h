#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "codec/quantizer/bit_order.h"

// Codes of 1 to 8 bits without gaps, in the order of bit_order.h. Private to codec/quantizer/.
namespace tern::codec::quantizer {

namespace packing {

constexpr std::uint64_t kBytePairs = 0x00ff00ff00ff00ffu;
constexpr std::uint64_t kHalves = 0x0000ffff0000ffffu;
constexpr std::uint64_t kWords = 0x00000000ffffffffu;

// Eight bytes to 8 * kBits bits: neighbours move together, then pairs, then fours.
template <unsigned kBits>
constexpr std::uint64_t join(std::uint64_t codes) noexcept {
  const std::uint64_t pairs = (codes & kBytePairs) | (codes >> 8 & kBytePairs) << kBits;
  const std::uint64_t fours = (pairs & kHalves) | (pairs >> 16 & kHalves) << (2 * kBits);
  return (fours & kWords) | (fours >> 32) << (4 * kBits);
}

template <unsigned kBits>
constexpr std::uint64_t split(std::uint64_t joined) noexcept {
  constexpr std::uint64_t kFour = (std::uint64_t{1} << (4 * kBits)) - 1;
  constexpr std::uint64_t kTwo = ((std::uint64_t{1} << (2 * kBits)) - 1) * 0x0000000100000001u;
  constexpr std::uint64_t kOne = ((std::uint64_t{1} << kBits) - 1) * 0x0001000100010001u;
  const std::uint64_t fours = (joined & kFour) | (joined >> (4 * kBits) & kFour) << 32;
  const std::uint64_t pairs = (fours & kTwo) | (fours >> (2 * kBits) & kTwo) << 16;
  return (pairs & kOne) | (pairs >> kBits & kOne) << 8;
}

// Inlined always, so that a kernel of a vector target is not left for a call to the baseline's
// code.
template <unsigned kBits>
[[gnu::always_inline]] inline void pack(const std::uint8_t* codes, std::size_t count,
                                        std::uint8_t* out) noexcept {
  // Whole words while there is room for them, because three or five bytes are several stores. What
  // is too much is written over by the next.
  for (; packed_bytes(count, kBits) >= 8; count -= 8, codes += 8, out += kBits) {
    std::uint64_t word;
    std::memcpy(&word, codes, 8);
    word = join<kBits>(word);
    std::memcpy(out, &word, 8);
  }
  for (; count >= 8; count -= 8, codes += 8, out += kBits) {
    std::uint64_t word;
    std::memcpy(&word, codes, 8);
    word = join<kBits>(word);
    std::memcpy(out, &word, kBits);
  }
  if (count == 0) return;
  std::uint64_t word = 0;
  std::memcpy(&word, codes, count);
  word = join<kBits>(word);
  std::memcpy(out, &word, packed_bytes(count, kBits));
}

template <unsigned kBits>
[[gnu::always_inline]] inline void unpack(const std::uint8_t* bytes, std::size_t count,
                                          std::uint8_t* codes) noexcept {
  for (; packed_bytes(count, kBits) >= 8; count -= 8, codes += 8, bytes += kBits) {
    std::uint64_t word;
    std::memcpy(&word, bytes, 8);
    word = split<kBits>(word);
    std::memcpy(codes, &word, 8);
  }
  for (; count >= 8; count -= 8, codes += 8, bytes += kBits) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes, kBits);
    word = split<kBits>(word);
    std::memcpy(codes, &word, 8);
  }
  if (count == 0) return;
  std::uint64_t word = 0;
  std::memcpy(&word, bytes, packed_bytes(count, kBits));
  word = split<kBits>(word);
  std::memcpy(codes, &word, count);
}

}  // namespace packing

// Requires: 1 <= bits <= 7, every code below 2^bits. Unused bits of the last byte become zero.
inline void pack_codes(const std::uint8_t* codes, std::size_t count, unsigned bits,
                       std::uint8_t* out) noexcept {
  using namespace packing;
  constexpr std::array kPack = {pack<1>, pack<2>, pack<3>, pack<4>, pack<5>, pack<6>, pack<7>};
  kPack[bits - 1](codes, count, out);
}

inline void unpack_codes(const std::uint8_t* bytes, std::size_t count, unsigned bits,
                         std::uint8_t* codes) noexcept {
  using namespace packing;
  constexpr std::array kUnpack = {unpack<1>, unpack<2>, unpack<3>, unpack<4>,
                                  unpack<5>, unpack<6>, unpack<7>};
  kUnpack[bits - 1](bytes, count, codes);
}

}  // namespace tern::codec::quantizer
