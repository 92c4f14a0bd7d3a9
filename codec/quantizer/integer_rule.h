#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/random.h"
#include "codec/quantizer/float_bits.h"

// Symmetric integers, one element at a time and without a branch or a division, so that plain loops
// over these functions vectorize. Private to codec/quantizer/.
//
// Words: L is the largest level, 2^(bits-1) - 1; levels are -L to L and a code is level + L; the
// step is the f32 scale of the block, so that a code stands for level * step.
namespace tern::codec::quantizer {

constexpr std::int32_t largest_level(unsigned bits) noexcept { return (1 << (bits - 1)) - 1; }

// How a value becomes a number of steps: t = (value * lift) * inverse, two f32 products, and |t| <=
// L. `lift` is a power of two, 1 for all but extreme blocks, where it keeps the inverse a normal
// number.
struct IntegerGrid {
  float step = 0.0f;
  float lift = 1.0f;
  float inverse = 0.0f;
};

// step = amax / L in f32, with two corrections of one unit in the last place: upwards if it is
// subnormal and so coarse that amax would lie beyond level L, downwards if L * step would overflow.
constexpr IntegerGrid integer_grid(std::int32_t largest_magnitude, std::int32_t level) noexcept {
  const float amax = std::bit_cast<float>(largest_magnitude);
  const auto levels = static_cast<float>(level);
  float step = amax / levels;
  if (step < std::numeric_limits<float>::min() && step * levels < amax) {
    step = std::bit_cast<float>(std::bit_cast<std::uint32_t>(step) + 1u);
  }
  if (step * levels > std::numeric_limits<float>::max()) {
    step = std::bit_cast<float>(std::bit_cast<std::uint32_t>(step) - 1u);
  }
  if (step == 0.0f) return {};  // all values are zero
  const float lift = step < 0x1p-60f ? 0x1p80f : step > 0x1p60f ? 0x1p-40f : 1.0f;
  float inverse = 1.0f / (step * lift);
  // A unit or two, so that no level needs to be limited to L later.
  while ((amax * lift) * inverse > levels) {
    inverse = std::bit_cast<float>(std::bit_cast<std::uint32_t>(inverse) - 1u);
  }
  return {step, lift, inverse};
}

// To nearest, ties to even: in the binade of kAligner an f32 has steps of 1.
constexpr std::uint8_t nearest_code(float value, IntegerGrid grid, std::int32_t level) noexcept {
  constexpr float kAligner = 0x1.8p23f;
  const float steps = (value * grid.lift) * grid.inverse;
  const std::int32_t rounded =
      std::bit_cast<std::int32_t>(steps + kAligner) - std::bit_cast<std::int32_t>(kAligner);
  return static_cast<std::uint8_t>(rounded + level);
}

// Upwards with the probability of the fraction. t as an integer in units of 2^-F, F = 31 - bits,
// plus F random bits, carries into the whole part as often as it should; it is below 2^30. A
// fraction finer than 2^-F, which only |t| < 1 can have, is cut off towards zero.
template <unsigned bits>
constexpr std::uint8_t stochastic_code(float value, IntegerGrid grid,
                                       std::uint32_t random) noexcept {
  constexpr unsigned kFraction = 31 - bits;
  constexpr auto kUnits = static_cast<float>(1u << kFraction);
  const float steps = (value * grid.lift) * grid.inverse;
  const auto fixed = static_cast<std::int32_t>(steps * kUnits);
  const auto draw = static_cast<std::int32_t>(random >> (32 - kFraction));
  return static_cast<std::uint8_t>(((fixed + draw) >> kFraction) + largest_level(bits));
}

constexpr float integer_value(std::uint8_t code, float step, std::int32_t level) noexcept {
  return static_cast<float>(static_cast<std::int32_t>(code) - level) * step;
}

}  // namespace tern::codec::quantizer
