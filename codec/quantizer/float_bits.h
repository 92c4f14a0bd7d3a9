#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

// Floats as bits, and floats among bytes. Private to codec/quantizer/.
namespace tern::codec::quantizer {

inline constexpr std::uint32_t kInfinityBits = 0x7f800000u;

// Signed, because every instruction set compares signed 32-bit numbers and some no others. Grows
// with the magnitude of the value.
constexpr std::int32_t magnitude_bits(float value) noexcept {
  return static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(value) & 0x7fffffffu);
}

constexpr float power_of_two(std::uint32_t biased_exponent) noexcept {
  return std::bit_cast<float>(biased_exponent << 23);
}

inline float load_f32(const std::byte* bytes) noexcept {
  float value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

inline void store_f32(std::byte* bytes, float value) noexcept {
  std::memcpy(bytes, &value, sizeof(value));
}

inline std::uint8_t* as_u8(std::byte* bytes) noexcept {
  return reinterpret_cast<std::uint8_t*>(bytes);
}
inline const std::uint8_t* as_u8(const std::byte* bytes) noexcept {
  return reinterpret_cast<const std::uint8_t*>(bytes);
}

// A foreign scale is one that a quantizer writes: not negative, and no multiple of it up to
// `largest_code` is infinite.
constexpr bool valid_scale(float scale, float largest_code) noexcept {
  return std::bit_cast<std::uint32_t>(scale) < kInfinityBits &&
         std::bit_cast<std::uint32_t>(scale * largest_code) < kInfinityBits;
}

}  // namespace tern::codec::quantizer
