#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

// What every instruction set implements for lloyd. Private to codec/quantizer/.
namespace tern::codec::quantizer {

struct LloydKernels {
  // A code is the number of `middles`, ascending ones, that lie below the value.
  void (*assign)(std::span<const float> values, std::span<const float> middles,
                 std::uint8_t* codes) noexcept;
  // Requires: every code below levels.size().
  void (*look_up)(std::span<const std::uint8_t> codes, std::span<const float> levels,
                  float* out) noexcept;
  // The order of bit_order.h, 1 to 6 bits.
  void (*pack)(const std::uint8_t* codes, std::size_t count, unsigned bits,
               std::uint8_t* out) noexcept;
  void (*unpack)(const std::uint8_t* bytes, std::size_t count, unsigned bits,
                 std::uint8_t* codes) noexcept;
};

const LloydKernels& lloyd_kernels() noexcept;
const LloydKernels* lloyd_highway(std::int64_t target) noexcept;
extern const LloydKernels kLloydScalar;

}  // namespace tern::codec::quantizer
