#pragma once

#include <cstddef>
#include <cstdint>

// What every instruction set implements for qsgd and terngrad. Private to codec/quantizer/.
//
// A code is a level with its sign, from -levels to levels, plus levels. Sums are f64 in this many
// lanes, element i of a block in lane i % kSumLanes, and the lanes are added up in order, so that
// every target gives the same bits; f64, so that no square of a finite value overflows.
namespace tern::codec::quantizer {

inline constexpr std::size_t kSumLanes = 16;

struct Draw {
  const float* values;
  std::size_t count;
  std::uint64_t key;
  std::uint32_t position;
  float norm;  // > 0
  std::uint32_t levels;
};

struct Grid {
  std::uint32_t levels;
  float unit;  // of one level
};

struct DrawKernels {
  std::uint32_t (*largest)(const float* values, std::size_t count) noexcept;  // magnitude's bits
  void (*squares)(const float* values, std::size_t count, double* lanes) noexcept;
  void (*draw)(const Draw& request, std::uint8_t* codes) noexcept;
  // Adds value times signed level to the lanes and returns the sum of the squared levels, for the
  // codes that were drawn. Requires: count <= 2^16.
  std::uint32_t (*dot)(const Draw& request, const std::uint8_t* codes, double* lanes) noexcept;
  void (*expand)(const std::uint8_t* codes, std::size_t count, const Grid& grid,
                 float* out) noexcept;
  std::uint8_t (*largest_code)(const std::uint8_t* codes, std::size_t count) noexcept;
  // `count` bytes of two codes each, the first in the low bits.
  void (*pack_pairs)(const std::uint8_t* codes, std::size_t count, std::uint8_t* out) noexcept;
  void (*unpack_pairs)(const std::uint8_t* bytes, std::size_t count, std::uint8_t* codes) noexcept;
  // Five runs of 64 codes to and from 64 bytes.
  void (*pack_tile)(const std::uint8_t* codes, std::uint8_t* out) noexcept;
  void (*unpack_tile)(const std::uint8_t* bytes, std::uint8_t* codes) noexcept;
};

const DrawKernels& draw_kernels() noexcept;
const DrawKernels* draw_highway(std::int64_t target) noexcept;
extern const DrawKernels kDrawScalar;

}  // namespace tern::codec::quantizer
