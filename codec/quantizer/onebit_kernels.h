#pragma once

#include <cstddef>
#include <cstdint>

// What every instruction set implements for onebit. Private to codec/quantizer/.
namespace tern::codec::quantizer {

inline constexpr std::size_t kSideLanes = 16;

// Sums of a block in f64, element i in lane i % kSideLanes, so that every target adds in the same
// order and no sum of finite values overflows.
struct SideSums {
  double below[kSideLanes] = {};  // of what is negative
  double above[kSideLanes] = {};  // of the others
  std::size_t above_count = 0;
};

// What the two sides of a block are decoded to, as it travels.
struct Means {
  float below;
  float above;
};
static_assert(sizeof(Means) == 8);

struct OnebitKernels {
  // Bit i of `bits` says values[i] >= 0; unused bits of the last byte are zero.
  void (*encode)(const float* values, std::size_t count, std::uint8_t* bits,
                 SideSums& sums) noexcept;
  void (*decode)(const std::uint8_t* bits, std::size_t count, const Means& means,
                 float* out) noexcept;
};

const OnebitKernels& onebit_kernels() noexcept;
const OnebitKernels* onebit_highway(std::int64_t target) noexcept;
extern const OnebitKernels kOnebitScalar;

}  // namespace tern::codec::quantizer
