#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/quantizer/plane_layout.h"

// natural and bitmask groups for one instruction set. Private to codec/quantizer/.
namespace tern::codec::quantizer {

// At most kPlaneGroup values.
struct PlaneValues {
  const float* values;
  std::size_t count;
};
struct PlaneOutput {
  float* values;
  std::size_t count;
};

struct PlaneKernels {
  // Return the largest magnitude_bits() among the values given, or among the values read.
  std::int32_t (*write_natural)(PlaneValues group, std::uint64_t key, std::uint32_t position,
                                std::byte* body) noexcept;
  std::int32_t (*read_natural)(const std::byte* body, PlaneOutput group) noexcept;
  std::int32_t (*write_bitmask)(PlaneValues group, MantissaCut cut, std::byte* body) noexcept;
  std::int32_t (*read_bitmask)(const std::byte* body, unsigned keep, PlaneOutput group) noexcept;
};

extern const PlaneKernels kPlaneScalar;
const PlaneKernels* plane_highway(std::int64_t target) noexcept;

}  // namespace tern::codec::quantizer
