// The scalar target of fp8 and MX.
#include <algorithm>

#include "codec/quantizer/bit_order.h"
#include "codec/quantizer/small_float.h"
#include "codec/quantizer/small_float_kernels.h"

namespace tern::codec::quantizer {
namespace {

std::int32_t largest_of(std::span<const float> values) noexcept {
  std::int32_t largest = 0;
  for (const float value : values) largest = std::max(largest, magnitude_bits(value));
  return largest;
}

// Writes the codes of a block that begins at a byte; with 4 bits the first is in the low nibble.
template <typename Format>
void encode_block(std::span<const float> values, float inverse, std::uint8_t* codes) noexcept {
  std::fill_n(codes, packed_bytes(values.size(), Format::kBits), std::uint8_t{0});
  for (std::size_t i = 0; i < values.size(); ++i) {
    put_code(codes, i, Format::kBits, Format::encode(values[i] * inverse));
  }
}

template <typename Format>
bool decode_block(const std::uint8_t* codes, float scale, std::span<float> out) noexcept {
  bool exist = true;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto code = static_cast<std::uint8_t>(get_code(codes, i, Format::kBits));
    exist = exist && Format::magnitude_of(code) <= Format::kLargestCode;
    out[i] = Format::decode(code) * scale;
  }
  return exist;
}

template <typename Format>
void encode_fp8(std::span<const float> values, std::size_t block, std::byte* side,
                std::byte* body) noexcept {
  for (std::size_t begin = 0; begin < values.size(); begin += block) {
    const auto part = values.subspan(begin, std::min(block, values.size() - begin));
    const PowerScale scale = fp8_scale<Format>(largest_of(part));
    store_f32(side, scale.scale);
    side += sizeof(float);
    encode_block<Format>(part, scale.inverse, as_u8(body) + begin);
  }
}

template <typename Format>
bool decode_fp8(const std::byte* side, const std::byte* body, std::size_t block,
                std::span<float> out) noexcept {
  for (std::size_t begin = 0; begin < out.size(); begin += block) {
    const auto part = out.subspan(begin, std::min(block, out.size() - begin));
    const float scale = load_f32(side);
    side += sizeof(float);
    if (!valid_scale(scale, Format::largest())) return false;
    if (!decode_block<Format>(as_u8(body) + begin, scale, part)) return false;
  }
  return true;
}

template <typename Format>
void encode_mx(std::span<const float> values, std::byte* side, std::byte* body) noexcept {
  for (std::size_t begin = 0; begin < values.size(); begin += kMxBlock) {
    const auto part = values.subspan(begin, std::min(kMxBlock, values.size() - begin));
    const std::uint8_t byte = mx_scale_byte<Format>(largest_of(part));
    *side++ = std::byte{byte};
    encode_block<Format>(part, mx_scale(byte).inverse, as_u8(body) + begin * Format::kBits / 8);
  }
}

template <typename Format>
bool decode_mx(const std::byte* side, const std::byte* body, std::span<float> out) noexcept {
  for (std::size_t begin = 0; begin < out.size(); begin += kMxBlock) {
    const auto part = out.subspan(begin, std::min(kMxBlock, out.size() - begin));
    const auto byte = std::to_integer<std::uint8_t>(*side++);
    if (byte > kMxLargestScale<Format>) return false;
    const std::uint8_t* const codes = as_u8(body) + begin * Format::kBits / 8;
    if (!decode_block<Format>(codes, mx_scale(byte).scale, part)) return false;
  }
  return true;
}

}  // namespace

const SmallFloatKernels kSmallFloatScalar = {
    {encode_fp8<E4M3>, decode_fp8<E4M3>}, {encode_fp8<E5M2>, decode_fp8<E5M2>},
    {encode_mx<E4M3>, decode_mx<E4M3>},   {encode_mx<E5M2>, decode_mx<E5M2>},
    {encode_mx<E2M1>, decode_mx<E2M1>},
};

}  // namespace tern::codec::quantizer
