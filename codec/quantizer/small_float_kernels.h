#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

// fp8 and MX arrays for one instruction set. Private to codec/quantizer/.
namespace tern::codec::quantizer {

inline constexpr std::size_t kMxBlock = 32;

struct Fp8Kernels {
  void (*encode)(std::span<const float> values, std::size_t block, std::byte* side,
                 std::byte* body) noexcept;
  // False: a scale or a code that encode() does not write.
  bool (*decode)(const std::byte* side, const std::byte* body, std::size_t block,
                 std::span<float> out) noexcept;
};

struct MxKernels {
  void (*encode)(std::span<const float> values, std::byte* side, std::byte* body) noexcept;
  bool (*decode)(const std::byte* side, const std::byte* body, std::span<float> out) noexcept;
};

struct SmallFloatKernels {
  Fp8Kernels fp8_e4m3;
  Fp8Kernels fp8_e5m2;
  MxKernels mxfp8_e4m3;
  MxKernels mxfp8_e5m2;
  MxKernels mxfp4;
};

extern const SmallFloatKernels kSmallFloatScalar;
const SmallFloatKernels* small_float_highway(std::int64_t target) noexcept;

}  // namespace tern::codec::quantizer
