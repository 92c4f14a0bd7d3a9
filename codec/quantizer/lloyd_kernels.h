#pragma once

#include <cstddef>
#include <cstdint>

// What every instruction set implements for lloyd. Private to codec/quantizer/.
namespace tern::codec::quantizer {

struct LloydKernels {
  // A code is the number of `middles` that lie below the value.
  void (*assign)(const float* values, std::size_t count, const float* middles,
                 std::size_t middle_count, std::uint8_t* codes) noexcept;
  // Requires: every code below the number of levels.
  void (*look_up)(const std::uint8_t* codes, std::size_t count, const float* levels,
                  float* out) noexcept;
};

const LloydKernels& lloyd_kernels() noexcept;
const LloydKernels* lloyd_highway(std::int64_t target) noexcept;
extern const LloydKernels kLloydScalar;

}  // namespace tern::codec::quantizer
