// The reference of MemoryKernels. An element's energy goes to lane i % lanes, in the order of
// elements.
#include <bit>

#include "codec/kernels.h"
#include "codec/memory_kernels.h"

namespace tern::codec {
namespace {

std::uint32_t compensate(const Sums& sums, float* sum, float* energy_lanes) noexcept {
  const auto& [input, state, scale, count] = sums;
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    float value = input[i];
    energy_lanes[i % kScanLanes] += value * value;
    if (state != nullptr) value = value + scale * state[i];
    const std::uint32_t bits = magnitude_bits(value);
    largest = largest < bits ? bits : largest;
    sum[i] = value;
  }
  return largest;
}

void leave(std::span<const float> sum, const float* decoded, float* left,
           float* energy_lanes) noexcept {
  for (std::size_t i = 0; i < sum.size(); ++i) {
    const float difference = sum[i] - decoded[i];
    left[i] = difference;
    energy_lanes[i % kResidualLanes] += difference * difference;
  }
}

void keep(std::span<const float> sum, float* left, float* energy_lanes) noexcept {
  for (std::size_t i = 0; i < sum.size(); ++i) {
    const float value = sum[i];
    if (left != nullptr) left[i] = value;
    energy_lanes[i % kResidualLanes] += value * value;
  }
}

void advance(const ShiftMove& move, float* shift, std::span<const float> decoded,
             float* out) noexcept {
  for (std::size_t i = 0; i < decoded.size(); ++i) {
    const float before = move.scale * shift[i];
    out[i] = before + decoded[i];
    shift[i] = before + move.alpha * decoded[i];
  }
}

void add(float* accumulator, const float* values, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) accumulator[i] += values[i];
}

}  // namespace

const MemoryKernels kMemoryScalar = {compensate, leave, keep, advance, add};

}  // namespace tern::codec
