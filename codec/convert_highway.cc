// The conversions for every vector target. They are the scalar functions of base/half.h in plain
// loops: they have no branch, so the compiler vectorizes them for the target of the enclosing
// namespace, and the bits are the reference's by construction.
#include "codec/target/compiled.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/convert_highway.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "codec/kernels.h"
#include "codec/kernels_highway.h"

HWY_BEFORE_NAMESPACE();
namespace tern::codec::HWY_NAMESPACE {

#if TERN_CODEC_HAS_KERNELS

HWY_INLINE std::uint16_t load_u16(const std::byte* bytes) noexcept {
  std::uint16_t value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

HWY_INLINE void store_u16(std::byte* bytes, std::uint16_t value) noexcept {
  std::memcpy(bytes, &value, sizeof(value));
}

void f16_to_f32_array(const std::byte* __restrict source, std::size_t count,
                      float* __restrict out) noexcept {
  for (std::size_t i = 0; i < count; ++i) out[i] = f16_to_f32(load_u16(source + 2 * i));
}

void f32_to_f16_array(const float* __restrict source, std::size_t count,
                      std::byte* __restrict out) noexcept {
  for (std::size_t i = 0; i < count; ++i) store_u16(out + 2 * i, f32_to_f16(source[i]));
}

void bf16_to_f32_array(const std::byte* __restrict source, std::size_t count,
                       float* __restrict out) noexcept {
  for (std::size_t i = 0; i < count; ++i) out[i] = bf16_to_f32(load_u16(source + 2 * i));
}

void f32_to_bf16_array(const float* __restrict source, std::size_t count,
                       std::byte* __restrict out) noexcept {
  for (std::size_t i = 0; i < count; ++i) store_u16(out + 2 * i, f32_to_bf16(source[i]));
}

void add_f32(float* __restrict accumulator, const std::byte* __restrict source,
             std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) accumulator[i] += load_f32(source + 4 * i);
}

void sum_f32(const std::byte* __restrict a, const std::byte* __restrict b, std::size_t count,
             float* __restrict out) noexcept {
  for (std::size_t i = 0; i < count; ++i) out[i] = load_f32(a + 4 * i) + load_f32(b + 4 * i);
}

void add_bf16(float* __restrict accumulator, const std::byte* __restrict source,
              std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) accumulator[i] += bf16_to_f32(load_u16(source + 2 * i));
}

void add_f16(float* __restrict accumulator, const std::byte* __restrict source,
             std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) accumulator[i] += f16_to_f32(load_u16(source + 2 * i));
}

const ConvertKernels kConvert = {f16_to_f32_array,  f32_to_f16_array, bf16_to_f32_array,
                                 f32_to_bf16_array, add_f32,          add_bf16,
                                 add_f16,           sum_f32};
inline const ConvertKernels* convert_table() noexcept { return &kConvert; }

#else

inline const ConvertKernels* convert_table() noexcept { return nullptr; }

#endif

}  // namespace tern::codec::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tern::codec {

TERN_CODEC_HIGHWAY_TABLE(ConvertKernels, convert_highway, convert_table)

}  // namespace tern::codec
#endif
