#pragma once

#include <hwy/detect_targets.h>

#include <array>
#include <cstdint>

#include "codec/kernels.h"

// What the files compiled per vector target share. Private to codec/.
namespace tern::codec {

// `target` is one bit of hwy::SupportedTargets(); null if this build has no kernels for it.
const ThreelcKernels* threelc_highway(std::int64_t target) noexcept;
const ConvertKernels* convert_highway(std::int64_t target) noexcept;

// For each mask of eight, the indices of its set bits: moves the wanted bytes of a group to its
// front.
inline constexpr auto kCompressOrder = [] {
  std::array<std::array<std::uint8_t, 8>, 256> table{};
  for (std::size_t mask = 0; mask < 256; ++mask) {
    std::size_t used = 0;
    for (std::uint8_t bit = 0; bit < 8; ++bit) {
      if ((mask >> bit & 1) != 0) table[mask][used++] = bit;
    }
  }
  return table;
}();

}  // namespace tern::codec

// Defines `name(target)` in the one pass in which HWY_ONCE is true, from the function `table` that
// every target's namespace has.
#if HWY_ARCH_X86
#define TERN_CODEC_HIGHWAY_TABLE(Type, name, table) \
  const Type* name(std::int64_t target) noexcept {  \
    if (target == HWY_SSE4) return N_SSE4::table(); \
    if (target == HWY_AVX2) return N_AVX2::table(); \
    if (target == HWY_AVX3) return N_AVX3::table(); \
    return nullptr;                                 \
  }
#elif HWY_ARCH_ARM_A64
#define TERN_CODEC_HIGHWAY_TABLE(Type, name, table)        \
  const Type* name(std::int64_t target) noexcept {         \
    return target == HWY_NEON ? N_NEON::table() : nullptr; \
  }
#else
#define TERN_CODEC_HIGHWAY_TABLE(Type, name, table) \
  const Type* name(std::int64_t) noexcept { return nullptr; }
#endif
