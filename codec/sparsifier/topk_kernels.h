#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

// What every instruction set implements for topk. Private to codec/sparsifier/.
//
// A key is the bits of a magnitude: for finite numbers it has the order of the magnitudes, and
// integers compare alike on every target.
namespace tern::codec::sparsifier {

inline constexpr std::uint32_t kMagnitude = 0x7fffffffu;

inline std::uint32_t key_of(float value) noexcept {
  return std::bit_cast<std::uint32_t>(value) & kMagnitude;
}

struct TopkKernels {
  // Values whose key is at least `threshold`. Requires: count < 2^31.
  std::size_t (*count)(const float* values, std::size_t count, std::uint32_t threshold) noexcept;
  // Their positions, ascending, as many as fit. Returns how many.
  std::size_t (*gather)(std::span<const float> values, std::uint32_t threshold,
                        std::span<std::uint32_t> positions) noexcept;
};

const TopkKernels& topk_kernels() noexcept;
const TopkKernels* topk_highway(std::int64_t target) noexcept;
extern const TopkKernels kTopkScalar;

}  // namespace tern::codec::sparsifier
