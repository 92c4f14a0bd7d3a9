#pragma once

#include <cstddef>
#include <cstdint>

// bf16 and fp16 arrays for one instruction set. Private to codec/quantizer/.
namespace tern::codec::quantizer {

struct HalfKernels {
  // Return the largest magnitude_bits() among the values.
  std::int32_t (*to_bf16)(const float* values, std::size_t count, std::byte* body) noexcept;
  std::int32_t (*to_fp16)(const float* values, std::size_t count, std::byte* body) noexcept;
  // Return the largest code without its sign.
  std::int32_t (*from_bf16)(const std::byte* body, std::size_t count, float* out) noexcept;
  std::int32_t (*from_fp16)(const std::byte* body, std::size_t count, float* out) noexcept;
};

extern const HalfKernels kHalfScalar;
const HalfKernels* half_highway(std::int64_t target) noexcept;

}  // namespace tern::codec::quantizer
