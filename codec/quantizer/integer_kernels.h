#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

// Arrays of symmetric integers for one instruction set. Private to codec/quantizer/.
namespace tern::codec::quantizer {

struct IntegerLayout {
  unsigned bits = 8;
  std::size_t block = 0;  // not 0, and a multiple of 8 unless it is all of the values
};

struct IntegerDraws {
  bool stochastic = false;  // the others are read only then
  std::uint64_t key = 0;
  std::uint32_t position = 0;
};

// Where the steps and the codes are written.
struct IntegerRoom {
  std::byte* side;
  std::byte* body;
};

struct IntegerKernels {
  void (*quantize)(const IntegerLayout& layout, const IntegerDraws& draws,
                   std::span<const float> values, const IntegerRoom& out) noexcept;
  // False: a scale or a code that quantize() does not write.
  bool (*dequantize)(const IntegerLayout& layout, const std::byte* side, const std::byte* body,
                     std::span<float> out) noexcept;
};

extern const IntegerKernels kIntegerScalar;
const IntegerKernels* integer_highway(std::int64_t target) noexcept;

}  // namespace tern::codec::quantizer
