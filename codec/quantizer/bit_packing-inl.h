// Packs codes of a few bits, in the order of bit_order.h, at the speed of words. Included inside
// files that are compiled once per vector target, and compiled again for each of them.
#if defined(TERN_CODEC_QUANTIZER_BIT_PACKING_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TERN_CODEC_QUANTIZER_BIT_PACKING_INL_H_
#undef TERN_CODEC_QUANTIZER_BIT_PACKING_INL_H_
#else
#define TERN_CODEC_QUANTIZER_BIT_PACKING_INL_H_
#endif

#include <hwy/highway.h>

#include <cstring>

#include "codec/quantizer/bit_order.h"
#include "codec/quantizer/pack.h"

HWY_BEFORE_NAMESPACE();
namespace tern::codec::quantizer::HWY_NAMESPACE {

// Words hold eight codes at a time, whatever the target (pack.h).
template <unsigned bits>
HWY_INLINE void pack_eights(const std::uint8_t* __restrict codes, std::size_t eights,
                            std::uint8_t* __restrict out) noexcept {
  packing::pack<bits>(codes, 8 * eights, out);
}

// Two and four to a byte narrow with one operation for each byte, without a 64-bit word.
template <>
HWY_INLINE void pack_eights<4>(const std::uint8_t* __restrict codes, std::size_t eights,
                               std::uint8_t* __restrict out) noexcept {
  for (std::size_t i = 0; i < 4 * eights; ++i) {
    std::uint16_t word;
    std::memcpy(&word, codes + 2 * i, sizeof(word));
    out[i] = static_cast<std::uint8_t>(word | (word >> 4));
  }
}

template <>
HWY_INLINE void pack_eights<2>(const std::uint8_t* __restrict codes, std::size_t eights,
                               std::uint8_t* __restrict out) noexcept {
  for (std::size_t i = 0; i < 2 * eights; ++i) {
    std::uint32_t word;
    std::memcpy(&word, codes + 4 * i, sizeof(word));
    out[i] = static_cast<std::uint8_t>(word | (word >> 6) | (word >> 12) | (word >> 18));
  }
}

template <unsigned bits>
HWY_INLINE void unpack_eights(const std::uint8_t* __restrict in, std::size_t eights,
                              std::uint8_t* __restrict codes) noexcept {
  packing::unpack<bits>(in, 8 * eights, codes);
}

template <>
HWY_INLINE void unpack_eights<4>(const std::uint8_t* __restrict in, std::size_t eights,
                                 std::uint8_t* __restrict codes) noexcept {
  for (std::size_t i = 0; i < 4 * eights; ++i) {
    const auto word = static_cast<std::uint16_t>((in[i] | (in[i] << 4)) & 0x0f0f);
    std::memcpy(codes + 2 * i, &word, sizeof(word));
  }
}

template <>
HWY_INLINE void unpack_eights<2>(const std::uint8_t* __restrict in, std::size_t eights,
                                 std::uint8_t* __restrict codes) noexcept {
  for (std::size_t i = 0; i < 2 * eights; ++i) {
    const std::uint32_t byte = in[i];
    const std::uint32_t word = (byte | byte << 6 | byte << 12 | byte << 18) & 0x03030303u;
    std::memcpy(codes + 4 * i, &word, sizeof(word));
  }
}

template <unsigned bits>
HWY_INLINE void pack_codes(const std::uint8_t* __restrict codes, std::size_t count,
                           std::uint8_t* __restrict out) noexcept {
  const std::size_t eights = count / 8;
  pack_eights<bits>(codes, eights, out);
  if (count % 8 != 0) {
    std::uint8_t* const rest = out + bits * eights;
    std::memset(rest, 0, packed_bytes(count % 8, bits));
    for (std::size_t i = 0; i < count % 8; ++i) put_code(rest, i, bits, codes[8 * eights + i]);
  }
}

template <unsigned bits>
HWY_INLINE void unpack_codes(const std::uint8_t* __restrict in, std::size_t count,
                             std::uint8_t* __restrict codes) noexcept {
  const std::size_t eights = count / 8;
  unpack_eights<bits>(in, eights, codes);
  for (std::size_t i = 8 * eights; i < count; ++i) {
    codes[i] = static_cast<std::uint8_t>(get_code(in, i, bits));
  }
}

}  // namespace tern::codec::quantizer::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
