// natural and bitmask for every vector target, as plain loops, which the compiler vectorizes for
// the target of the enclosing namespace.
#include "codec/target/compiled.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/quantizer/plane_highway.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

#include "codec/quantizer/bit_packing-inl.h"
#include "codec/quantizer/plane_kernels.h"
#include "codec/target/highway_table.h"

HWY_BEFORE_NAMESPACE();
namespace tern::codec::quantizer::HWY_NAMESPACE {

#if TERN_CODEC_HAS_KERNELS

// A multiple of 8, so that the codes of a stripe end at a byte.
inline constexpr std::size_t kPlaneStripe = 512;

std::int32_t write_natural(PlaneValues group, std::uint64_t key, std::uint32_t position,
                           std::byte* body) noexcept {
  std::uint8_t* const signs = as_u8(body) + group.count;
  std::int32_t largest = 0;
  for (std::size_t begin = 0; begin < group.count; begin += kPlaneStripe) {
    const float* __restrict values = group.values + begin;
    std::uint8_t* __restrict exponents = as_u8(body) + begin;
    // As wide as the positions, so that vectors of them need no narrowing.
    const auto count = static_cast<std::uint32_t>(std::min(kPlaneStripe, group.count - begin));
    const std::uint32_t first = position + static_cast<std::uint32_t>(begin);
    std::uint8_t stripe[kPlaneStripe];
    for (std::uint32_t i = 0; i < count; ++i) {
      exponents[i] = natural_exponent(values[i], random_u32(key, first + i));
      stripe[i] = static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(values[i]) >> 31);
      const std::int32_t magnitude = magnitude_bits(values[i]);
      largest = magnitude > largest ? magnitude : largest;
    }
    pack_codes<1>(stripe, count, signs + begin / 8);
  }
  return largest;
}

std::int32_t read_natural(const std::byte* body, PlaneOutput group) noexcept {
  const std::uint8_t* __restrict exponents = as_u8(body);
  const std::uint8_t* __restrict signs = exponents + group.count;
  float* __restrict out = group.values;
  std::int32_t largest = 0;
  for (std::size_t begin = 0; begin < group.count; begin += kPlaneStripe) {
    const std::size_t count = std::min(kPlaneStripe, group.count - begin);
    std::uint8_t stripe[kPlaneStripe];
    unpack_codes<1>(signs + begin / 8, count, stripe);
    for (std::size_t i = 0; i < count; ++i) {
      const std::int32_t magnitude = exponents[begin + i] << 23;
      largest = magnitude > largest ? magnitude : largest;
      out[begin + i] = std::bit_cast<float>(static_cast<std::uint32_t>(magnitude) |
                                            std::uint32_t{stripe[i]} << 31);
    }
  }
  return largest;
}

template <unsigned bits>
void pack_rest(const std::uint32_t* __restrict words, std::size_t count, unsigned shift,
               std::uint8_t* __restrict out) noexcept {
  std::uint8_t codes[kPlaneStripe];
  for (std::size_t i = 0; i < count; ++i) {
    codes[i] = static_cast<std::uint8_t>((words[i] >> shift) & ((1u << bits) - 1));
  }
  pack_codes<bits>(codes, count, out);
}

template <unsigned bits>
void unpack_rest(const std::uint8_t* __restrict in, std::size_t count, unsigned shift,
                 std::uint32_t* __restrict words) noexcept {
  std::uint8_t codes[kPlaneStripe];
  unpack_codes<bits>(in, count, codes);
  for (std::size_t i = 0; i < count; ++i) words[i] |= std::uint32_t{codes[i]} << shift;
}

// By the width of the last plane, 1 to 7.
constexpr decltype(&pack_rest<1>) kPackRest[] = {pack_rest<1>, pack_rest<2>, pack_rest<3>,
                                                 pack_rest<4>, pack_rest<5>, pack_rest<6>,
                                                 pack_rest<7>};
constexpr decltype(&unpack_rest<1>) kUnpackRest[] = {unpack_rest<1>, unpack_rest<2>, unpack_rest<3>,
                                                     unpack_rest<4>, unpack_rest<5>, unpack_rest<6>,
                                                     unpack_rest<7>};

std::int32_t write_bitmask(PlaneValues group, MantissaCut cut, std::byte* body) noexcept {
  const unsigned planes = bitmask_bits(cut.keep) / 8;
  const unsigned rest = bitmask_bits(cut.keep) % 8;
  const float* __restrict values = group.values;
  std::int32_t largest = 0;
  for (std::size_t begin = 0; begin < group.count; begin += kPlaneStripe) {
    const std::size_t count = std::min(kPlaneStripe, group.count - begin);
    std::uint32_t words[kPlaneStripe];
    for (std::size_t i = 0; i < count; ++i) {
      words[i] = cut.cut(std::bit_cast<std::uint32_t>(values[begin + i]));
      const auto magnitude = static_cast<std::int32_t>(words[i] & 0x7fffffffu);
      largest = magnitude > largest ? magnitude : largest;
    }
    for (unsigned plane = 0; plane < planes; ++plane) {
      std::uint8_t* __restrict out = as_u8(body) + plane * group.count + begin;
      const unsigned shift = 24 - 8 * plane;
      for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<std::uint8_t>(words[i] >> shift);
    }
    if (rest != 0) {
      std::uint8_t* const out = as_u8(body) + planes * group.count + begin / 8 * rest;
      kPackRest[rest - 1](words, count, 32 - 8 * planes - rest, out);
    }
  }
  return largest;
}

std::int32_t read_bitmask(const std::byte* body, unsigned keep, PlaneOutput group) noexcept {
  const unsigned planes = bitmask_bits(keep) / 8;
  const unsigned rest = bitmask_bits(keep) % 8;
  std::int32_t largest = 0;
  for (std::size_t begin = 0; begin < group.count; begin += kPlaneStripe) {
    const std::size_t count = std::min(kPlaneStripe, group.count - begin);
    std::uint32_t words[kPlaneStripe];
    // There always is a first plane, and all of the exponent is in it or in what follows.
    const std::uint8_t* __restrict first = as_u8(body) + begin;
    for (std::size_t i = 0; i < count; ++i) words[i] = std::uint32_t{first[i]} << 24;
    for (unsigned plane = 1; plane < planes; ++plane) {
      const std::uint8_t* __restrict in = as_u8(body) + plane * group.count + begin;
      const unsigned shift = 24 - 8 * plane;
      for (std::size_t i = 0; i < count; ++i) words[i] |= std::uint32_t{in[i]} << shift;
    }
    if (rest != 0) {
      const std::uint8_t* const in = as_u8(body) + planes * group.count + begin / 8 * rest;
      kUnpackRest[rest - 1](in, count, 32 - 8 * planes - rest, words);
    }
    float* __restrict out = group.values + begin;
    for (std::size_t i = 0; i < count; ++i) {
      const auto magnitude = static_cast<std::int32_t>(words[i] & 0x7fffffffu);
      largest = magnitude > largest ? magnitude : largest;
      out[i] = std::bit_cast<float>(words[i]);
    }
  }
  return largest;
}

const PlaneKernels kPlane = {write_natural, read_natural, write_bitmask, read_bitmask};
inline const PlaneKernels* plane_table() noexcept { return &kPlane; }

#else

inline const PlaneKernels* plane_table() noexcept { return nullptr; }

#endif

}  // namespace tern::codec::quantizer::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tern::codec::quantizer {

TERN_CODEC_HIGHWAY_TABLE(PlaneKernels, plane_highway, plane_table)

}  // namespace tern::codec::quantizer
#endif
