// The scalar target of bf16 and fp16.
#include <algorithm>
#include <cstring>

#include "base/half.h"
#include "codec/quantizer/float_bits.h"
#include "codec/quantizer/half_kernels.h"

namespace tern::codec::quantizer {
namespace {

template <std::uint16_t (*convert)(float) noexcept>
std::int32_t to_half(const float* values, std::size_t count, std::byte* body) noexcept {
  std::int32_t largest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint16_t code = convert(values[i]);
    std::memcpy(body + 2 * i, &code, sizeof(code));
    largest = std::max(largest, magnitude_bits(values[i]));
  }
  return largest;
}

template <float (*convert)(std::uint16_t) noexcept>
std::int32_t from_half(const std::byte* body, std::size_t count, float* out) noexcept {
  std::int32_t largest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    std::uint16_t code;
    std::memcpy(&code, body + 2 * i, sizeof(code));
    out[i] = convert(code);
    largest = std::max<std::int32_t>(largest, code & 0x7fff);
  }
  return largest;
}

}  // namespace

const HalfKernels kHalfScalar = {to_half<f32_to_bf16>, to_half<f32_to_f16>, from_half<bf16_to_f32>,
                                 from_half<f16_to_f32>};

}  // namespace tern::codec::quantizer
