// bf16 and fp16 for every vector target: the functions of base/half.h in plain loops without a
// branch, which the compiler vectorizes for the target of the enclosing namespace.
#include "codec/target/compiled.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/quantizer/half_highway.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstring>

#include "base/half.h"
#include "codec/quantizer/float_bits.h"
#include "codec/quantizer/half_kernels.h"
#include "codec/target/highway_table.h"

HWY_BEFORE_NAMESPACE();
namespace tern::codec::quantizer::HWY_NAMESPACE {

#if TERN_CODEC_HAS_KERNELS

template <std::uint16_t (*convert)(float) noexcept>
std::int32_t to_half(const float* __restrict values, std::size_t count,
                     std::byte* __restrict body) noexcept {
  std::int32_t largest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint16_t code = convert(values[i]);
    std::memcpy(body + 2 * i, &code, sizeof(code));
    const std::int32_t magnitude = magnitude_bits(values[i]);
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest;
}

template <float (*convert)(std::uint16_t) noexcept>
std::int32_t from_half(const std::byte* __restrict body, std::size_t count,
                       float* __restrict out) noexcept {
  std::int32_t largest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    std::uint16_t code;
    std::memcpy(&code, body + 2 * i, sizeof(code));
    out[i] = convert(code);
    const std::int32_t magnitude = code & 0x7fff;
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest;
}

const HalfKernels kHalf = {to_half<f32_to_bf16>, to_half<f32_to_f16>, from_half<bf16_to_f32>,
                           from_half<f16_to_f32>};
inline const HalfKernels* half_table() noexcept { return &kHalf; }

#else

inline const HalfKernels* half_table() noexcept { return nullptr; }

#endif

}  // namespace tern::codec::quantizer::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tern::codec::quantizer {

TERN_CODEC_HIGHWAY_TABLE(HalfKernels, half_highway, half_table)

}  // namespace tern::codec::quantizer
#endif
