// The scalar target of natural and bitmask.
#include <algorithm>

#include "codec/quantizer/plane_kernels.h"

namespace tern::codec::quantizer {
namespace {

std::int32_t write_natural(PlaneValues group, std::uint64_t key, std::uint32_t position,
                           std::byte* body) noexcept {
  std::uint8_t* const exponents = as_u8(body);
  std::uint8_t* const signs = exponents + group.count;
  std::fill_n(signs, packed_bytes(group.count, 1), std::uint8_t{0});
  std::int32_t largest = 0;
  for (std::size_t i = 0; i < group.count; ++i) {
    const float value = group.values[i];
    exponents[i] =
        natural_exponent(value, random_u32(key, position + static_cast<std::uint32_t>(i)));
    put_code(signs, i, 1, std::bit_cast<std::uint32_t>(value) >> 31);
    largest = std::max(largest, magnitude_bits(value));
  }
  return largest;
}

std::int32_t read_natural(const std::byte* body, PlaneOutput group) noexcept {
  const std::uint8_t* const exponents = as_u8(body);
  const std::uint8_t* const signs = exponents + group.count;
  std::int32_t largest = 0;
  for (std::size_t i = 0; i < group.count; ++i) {
    const std::uint32_t bits = get_code(signs, i, 1) << 31 | std::uint32_t{exponents[i]} << 23;
    group.values[i] = std::bit_cast<float>(bits);
    largest = std::max(largest, magnitude_bits(group.values[i]));
  }
  return largest;
}

std::int32_t write_bitmask(PlaneValues group, MantissaCut cut, std::byte* body) noexcept {
  const unsigned planes = bitmask_bits(cut.keep) / 8;
  const unsigned rest = bitmask_bits(cut.keep) % 8;
  std::uint8_t* const out = as_u8(body);
  std::uint8_t* const codes = out + planes * group.count;
  std::fill_n(codes, packed_bytes(group.count, rest), std::uint8_t{0});
  std::int32_t largest = 0;
  for (std::size_t i = 0; i < group.count; ++i) {
    const std::uint32_t bits = cut.cut(std::bit_cast<std::uint32_t>(group.values[i]));
    for (unsigned plane = 0; plane < planes; ++plane) {
      out[plane * group.count + i] = static_cast<std::uint8_t>(bits >> (24 - 8 * plane));
    }
    if (rest != 0) put_code(codes, i, rest, (bits << (8 * planes)) >> (32 - rest));
    largest = std::max(largest, static_cast<std::int32_t>(bits & 0x7fffffffu));
  }
  return largest;
}

std::int32_t read_bitmask(const std::byte* body, unsigned keep, PlaneOutput group) noexcept {
  const unsigned planes = bitmask_bits(keep) / 8;
  const unsigned rest = bitmask_bits(keep) % 8;
  const std::uint8_t* const in = as_u8(body);
  std::int32_t largest = 0;
  for (std::size_t i = 0; i < group.count; ++i) {
    std::uint32_t bits = 0;
    for (unsigned plane = 0; plane < planes; ++plane) {
      bits |= std::uint32_t{in[plane * group.count + i]} << (24 - 8 * plane);
    }
    if (rest != 0) {
      bits |= get_code(in + planes * group.count, i, rest) << (32 - 8 * planes - rest);
    }
    group.values[i] = std::bit_cast<float>(bits);
    largest = std::max(largest, magnitude_bits(group.values[i]));
  }
  return largest;
}

}  // namespace

const PlaneKernels kPlaneScalar = {write_natural, read_natural, write_bitmask, read_bitmask};

}  // namespace tern::codec::quantizer
