// The scalar target of the conversions between f32 and the 16-bit types.
#include "codec/kernels.h"

namespace tern::codec {
namespace {

std::uint16_t load_u16(const std::byte* bytes) noexcept {
  std::uint16_t value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

void f16_to_f32_array(const std::byte* source, std::size_t count, float* out) noexcept {
  for (std::size_t i = 0; i < count; ++i) out[i] = f16_to_f32(load_u16(source + 2 * i));
}

void f32_to_f16_array(const float* source, std::size_t count, std::byte* out) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint16_t half = f32_to_f16(source[i]);
    std::memcpy(out + 2 * i, &half, sizeof(half));
  }
}

void bf16_to_f32_array(const std::byte* source, std::size_t count, float* out) noexcept {
  for (std::size_t i = 0; i < count; ++i) out[i] = bf16_to_f32(load_u16(source + 2 * i));
}

void f32_to_bf16_array(const float* source, std::size_t count, std::byte* out) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint16_t half = f32_to_bf16(source[i]);
    std::memcpy(out + 2 * i, &half, sizeof(half));
  }
}

void add_f32(float* accumulator, const std::byte* source, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) accumulator[i] += load_f32(source + 4 * i);
}

void sum_f32(const std::byte* a, const std::byte* b, std::size_t count, float* out) noexcept {
  for (std::size_t i = 0; i < count; ++i) out[i] = load_f32(a + 4 * i) + load_f32(b + 4 * i);
}

void add_bf16(float* accumulator, const std::byte* source, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) accumulator[i] += bf16_to_f32(load_u16(source + 2 * i));
}

void add_f16(float* accumulator, const std::byte* source, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) accumulator[i] += f16_to_f32(load_u16(source + 2 * i));
}

}  // namespace

const ConvertKernels kConvertScalar = {f16_to_f32_array,  f32_to_f16_array, bf16_to_f32_array,
                                       f32_to_bf16_array, add_f32,          add_bf16,
                                       add_f16,           sum_f32};

}  // namespace tern::codec
