#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "codec/kernels.h"

// What memories do to a chunk, one pass each. Private to codec/.
namespace tern::codec {

// How a shift moves along a decoded difference.
struct ShiftMove {
  float scale;
  float alpha;
};

struct MemoryKernels {
  // Writes the sums. Returns their largest magnitude bits and adds the energy of the input to
  // kScanLanes lanes. Each input is read once.
  std::uint32_t (*compensate)(const Sums& sums, float* sum, float* energy_lanes) noexcept;
  // left = sum - decoded, its energy to kResidualLanes lanes. `left` may be `sum`.
  void (*leave)(std::span<const float> sum, const float* decoded, float* left,
                float* energy_lanes) noexcept;
  // left = sum (null: not wanted), its energy to kResidualLanes lanes.
  void (*keep)(std::span<const float> sum, float* left, float* energy_lanes) noexcept;
  // out = scale * shift + decoded; shift = scale * shift + alpha * decoded.
  void (*advance)(const ShiftMove& move, float* shift, std::span<const float> decoded,
                  float* out) noexcept;
  // accumulator += values
  void (*add)(float* accumulator, const float* values, std::size_t count) noexcept;
};

extern const MemoryKernels kMemoryScalar;
const MemoryKernels& memory_kernels() noexcept;

}  // namespace tern::codec
