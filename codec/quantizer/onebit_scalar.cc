// The scalar target: the plainest form of the onebit kernels.
#include <algorithm>

#include "codec/quantizer/onebit_kernels.h"

namespace tern::codec::quantizer {
namespace {

void encode(const float* values, std::size_t count, std::uint8_t* bits, SideSums& sums) noexcept {
  std::fill_n(bits, (count + 7) / 8, std::uint8_t{0});
  for (std::size_t i = 0; i < count; ++i) {
    const bool above = values[i] >= 0.0f;
    double* const lanes = above ? sums.above : sums.below;
    lanes[i % kSideLanes] += static_cast<double>(values[i]);
    sums.above_count += above ? 1 : 0;
    bits[i / 8] = static_cast<std::uint8_t>(bits[i / 8] | (above ? 1u : 0u) << (i % 8));
  }
}

void decode(const std::uint8_t* bits, std::size_t count, const Means& means, float* out) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = (bits[i / 8] >> (i % 8) & 1) != 0 ? means.above : means.below;
  }
}

}  // namespace

const OnebitKernels kOnebitScalar = {encode, decode};

}  // namespace tern::codec::quantizer
