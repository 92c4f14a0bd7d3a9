#pragma once

#include <cstddef>
#include <cstdint>

// What memories do to a chunk, one pass each. Private to codec/.
namespace tern::codec {

struct MemoryKernels {
  // sum = input + scale * state (input alone if state is null). Returns the largest magnitude bits
  // of the sums and adds the energy of input to kScanLanes lanes. Each input is read once.
  std::uint32_t (*compensate)(const float* input, const float* state, float scale,
                              std::size_t count, float* sum, float* energy_lanes) noexcept;
  // left = sum - decoded, its energy to kResidualLanes lanes. `left` may be `sum`.
  void (*leave)(const float* sum, const float* decoded, std::size_t count, float* left,
                float* energy_lanes) noexcept;
  // left = sum (null: not wanted), its energy to kResidualLanes lanes.
  void (*keep)(const float* sum, std::size_t count, float* left, float* energy_lanes) noexcept;
  // out = scale * shift + decoded; shift = scale * shift + alpha * decoded.
  void (*advance)(float* shift, float scale, float alpha, const float* decoded, std::size_t count,
                  float* out) noexcept;
  // accumulator += values
  void (*add)(float* accumulator, const float* values, std::size_t count) noexcept;
};

extern const MemoryKernels kMemoryScalar;
const MemoryKernels& memory_kernels() noexcept;

}  // namespace tern::codec
