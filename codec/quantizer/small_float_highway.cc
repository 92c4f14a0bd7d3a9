// fp8 and MX for every vector target: the functions of small_float.h in plain loops, which the
// compiler vectorizes for the target of the enclosing namespace.
#include "codec/target/compiled.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/quantizer/small_float_highway.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

#include "codec/quantizer/bit_packing-inl.h"
#include "codec/quantizer/small_float.h"
#include "codec/quantizer/small_float_kernels.h"
#include "codec/target/highway_table.h"

HWY_BEFORE_NAMESPACE();
namespace tern::codec::quantizer::HWY_NAMESPACE {

#if TERN_CODEC_HAS_KERNELS

// Codes of four bits pass through a buffer of this many bytes, which stays in L1.
inline constexpr std::size_t kStripe = 16 * kMxBlock;

HWY_INLINE std::int32_t largest_of(const float* __restrict values, std::size_t count) noexcept {
  std::int32_t largest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::int32_t magnitude = magnitude_bits(values[i]);
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest;
}

template <typename Format>
HWY_INLINE void encode_bytes(const float* __restrict values, std::size_t count, float inverse,
                             std::uint8_t* __restrict codes) noexcept {
  for (std::size_t i = 0; i < count; ++i) codes[i] = Format::encode(values[i] * inverse);
}

// Returns the largest code without its sign.
template <typename Format>
HWY_INLINE std::int32_t decode_bytes(const std::uint8_t* __restrict codes, std::size_t count,
                                     float scale, float* __restrict out) noexcept {
  std::int32_t largest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::int32_t magnitude = Format::magnitude_of(codes[i]);
    largest = magnitude > largest ? magnitude : largest;
    out[i] = Format::decode(codes[i]) * scale;
  }
  return largest;
}

template <typename Format>
void encode_fp8(std::span<const float> values, std::size_t block, std::byte* side,
                std::byte* body) noexcept {
  for (std::size_t begin = 0; begin < values.size(); begin += block) {
    const float* const part = values.data() + begin;
    const std::size_t count = std::min(block, values.size() - begin);
    const PowerScale scale = fp8_scale<Format>(largest_of(part, count));
    store_f32(side, scale.scale);
    side += sizeof(float);
    encode_bytes<Format>(part, count, scale.inverse, as_u8(body) + begin);
  }
}

template <typename Format>
bool decode_fp8(const std::byte* side, const std::byte* body, std::size_t block,
                std::span<float> out) noexcept {
  for (std::size_t begin = 0; begin < out.size(); begin += block) {
    const std::size_t count = std::min(block, out.size() - begin);
    const float scale = load_f32(side);
    side += sizeof(float);
    if (!valid_scale(scale, Format::largest())) return false;
    if (decode_bytes<Format>(as_u8(body) + begin, count, scale, out.data() + begin) >
        Format::kLargestCode) {
      return false;
    }
  }
  return true;
}

// The scales and codes of whole blocks and of one that is shorter. Called with the constant
// kMxBlock for all but that one, so that the inner loops have no remainder.
template <typename Format>
HWY_INLINE void encode_mx_block(const float* __restrict values, std::size_t count,
                                std::byte* __restrict side,
                                std::uint8_t* __restrict codes) noexcept {
  const std::uint8_t byte = mx_scale_byte<Format>(largest_of(values, count));
  *side = std::byte{byte};
  encode_bytes<Format>(values, count, mx_scale(byte).inverse, codes);
}

template <typename Format>
HWY_INLINE void encode_mx_codes(const float* __restrict values, std::size_t count,
                                std::byte* __restrict side,
                                std::uint8_t* __restrict codes) noexcept {
  const std::size_t whole = count / kMxBlock * kMxBlock;
  for (std::size_t i = 0; i < whole; i += kMxBlock) {
    encode_mx_block<Format>(values + i, kMxBlock, side++, codes + i);
  }
  if (whole != count) encode_mx_block<Format>(values + whole, count - whole, side, codes + whole);
}

// Returns the largest code without its sign. A scale that does not exist counts as such a code.
template <typename Format>
HWY_INLINE std::int32_t decode_mx_codes(const std::byte* __restrict side,
                                        const std::uint8_t* __restrict codes, std::size_t count,
                                        float* __restrict out) noexcept {
  const std::size_t whole = count / kMxBlock * kMxBlock;
  std::int32_t largest = 0;
  for (std::size_t i = 0; i < whole; i += kMxBlock) {
    const auto byte = std::to_integer<std::uint8_t>(*side++);
    if (byte > kMxLargestScale<Format>) return Format::kLargestCode + 1;
    largest =
        std::max(largest, decode_bytes<Format>(codes + i, kMxBlock, mx_scale(byte).scale, out + i));
  }
  if (whole == count) return largest;
  const auto byte = std::to_integer<std::uint8_t>(*side);
  if (byte > kMxLargestScale<Format>) return Format::kLargestCode + 1;
  return std::max(largest, decode_bytes<Format>(codes + whole, count - whole, mx_scale(byte).scale,
                                                out + whole));
}

template <typename Format>
void encode_mx(std::span<const float> values, std::byte* side, std::byte* body) noexcept {
  if constexpr (Format::kBits == 8) {
    encode_mx_codes<Format>(values.data(), values.size(), side, as_u8(body));
  } else {
    for (std::size_t begin = 0; begin < values.size(); begin += kStripe) {
      const std::size_t count = std::min(kStripe, values.size() - begin);
      std::uint8_t codes[kStripe];
      encode_mx_codes<Format>(values.data() + begin, count, side + begin / kMxBlock, codes);
      pack_codes<Format::kBits>(codes, count, as_u8(body) + begin * Format::kBits / 8);
    }
  }
}

template <typename Format>
bool decode_mx(const std::byte* side, const std::byte* body, std::span<float> out) noexcept {
  if constexpr (Format::kBits == 8) {
    return decode_mx_codes<Format>(side, as_u8(body), out.size(), out.data()) <=
           Format::kLargestCode;
  } else {
    for (std::size_t begin = 0; begin < out.size(); begin += kStripe) {
      const std::size_t count = std::min(kStripe, out.size() - begin);
      std::uint8_t codes[kStripe];
      unpack_codes<Format::kBits>(as_u8(body) + begin * Format::kBits / 8, count, codes);
      if (decode_mx_codes<Format>(side + begin / kMxBlock, codes, count, out.data() + begin) >
          Format::kLargestCode) {
        return false;
      }
    }
    return true;
  }
}

const SmallFloatKernels kSmallFloat = {
    {encode_fp8<E4M3>, decode_fp8<E4M3>}, {encode_fp8<E5M2>, decode_fp8<E5M2>},
    {encode_mx<E4M3>, decode_mx<E4M3>},   {encode_mx<E5M2>, decode_mx<E5M2>},
    {encode_mx<E2M1>, decode_mx<E2M1>},
};
inline const SmallFloatKernels* small_float_table() noexcept { return &kSmallFloat; }

#else

inline const SmallFloatKernels* small_float_table() noexcept { return nullptr; }

#endif

}  // namespace tern::codec::quantizer::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tern::codec::quantizer {

TERN_CODEC_HIGHWAY_TABLE(SmallFloatKernels, small_float_highway, small_float_table)

}  // namespace tern::codec::quantizer
#endif
