#pragma once

// The loops behind DrawKernels. They have no branch, so that a compiler vectorizes them for the
// target of the function into which they are inlined, and the bits are the reference's by
// construction: there is no fused multiply-add, and no sum whose order is left open.

#include <algorithm>
#include <bit>

#include "base/random.h"
#include "codec/quantizer/draw_kernels.h"

#define TERN_LOOP [[gnu::always_inline]] inline

namespace tern::codec::quantizer::loops {

TERN_LOOP std::uint32_t largest(const float* __restrict values, std::size_t count) noexcept {
  std::int32_t found = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::int32_t key = std::bit_cast<std::int32_t>(values[i]) & 0x7fffffff;
    found = key > found ? key : found;
  }
  return static_cast<std::uint32_t>(found);
}

TERN_LOOP void squares(const float* __restrict values, std::size_t count,
                       double* __restrict lanes) noexcept {
  std::size_t i = 0;
  double sums[kSumLanes];
  for (std::size_t lane = 0; lane < kSumLanes; ++lane) sums[lane] = lanes[lane];
  for (; i + kSumLanes <= count; i += kSumLanes) {
    for (std::size_t lane = 0; lane < kSumLanes; ++lane) {
      const auto value = static_cast<double>(values[i + lane]);
      sums[lane] += value * value;
    }
  }
  for (std::size_t lane = 0; i < count; ++i, ++lane) {
    const auto value = static_cast<double>(values[i]);
    sums[lane] += value * value;
  }
  for (std::size_t lane = 0; lane < kSumLanes; ++lane) lanes[lane] = sums[lane];
}

// A division, because the inverse of a norm may be infinite.
TERN_LOOP void draw(const Draw& request, std::uint8_t* __restrict codes) noexcept {
  const Draw local = request;
  const float* __restrict values = local.values;
  const auto levels = static_cast<std::int32_t>(local.levels);
  const auto most = static_cast<float>(levels);
  const auto count = static_cast<std::uint32_t>(local.count);
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(values[i]);
    const float magnitude = std::bit_cast<float>(bits & 0x7fffffffu);
    const float exact = magnitude / local.norm * most;
    const float height = exact < most ? exact : most;
    const auto below = static_cast<std::int32_t>(height);
    const float rest = height - static_cast<float>(below);
    const std::int32_t up = random_unit(local.key, local.position + i) < rest ? 1 : 0;
    const std::int32_t level = below + up;
    const std::int32_t negative = std::bit_cast<std::int32_t>(bits) >> 31;
    codes[i] = static_cast<std::uint8_t>(levels + ((level ^ negative) - negative));
  }
}

TERN_LOOP std::uint32_t dot(const Draw& request, const std::uint8_t* __restrict codes,
                            double* __restrict lanes) noexcept {
  const float* __restrict values = request.values;
  const std::size_t count = request.count;
  const auto zero = static_cast<std::int32_t>(request.levels);
  std::size_t i = 0;
  double sums[kSumLanes];
  for (std::size_t lane = 0; lane < kSumLanes; ++lane) sums[lane] = lanes[lane];
  for (; i + kSumLanes <= count; i += kSumLanes) {
    for (std::size_t lane = 0; lane < kSumLanes; ++lane) {
      const std::int32_t level = codes[i + lane] - zero;
      sums[lane] += static_cast<double>(values[i + lane]) * static_cast<double>(level);
    }
  }
  for (std::size_t lane = 0; i < count; ++i, ++lane) {
    sums[lane] += static_cast<double>(values[i]) * static_cast<double>(codes[i] - zero);
  }
  for (std::size_t lane = 0; lane < kSumLanes; ++lane) lanes[lane] = sums[lane];
  std::int32_t energy = 0;
  for (i = 0; i < count; ++i) energy += (codes[i] - zero) * (codes[i] - zero);
  return static_cast<std::uint32_t>(energy);
}

TERN_LOOP void expand(const std::uint8_t* __restrict codes, std::size_t count, const Grid& grid,
                      float* __restrict out) noexcept {
  const auto zero = static_cast<std::int32_t>(grid.levels);
  const float unit = grid.unit;
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = static_cast<float>(codes[i] - zero) * unit;
  }
}

TERN_LOOP std::uint8_t largest_code(const std::uint8_t* __restrict codes,
                                    std::size_t count) noexcept {
  std::uint8_t found = 0;
  for (std::size_t i = 0; i < count; ++i) found = codes[i] > found ? codes[i] : found;
  return found;
}

TERN_LOOP void pack_pairs(const std::uint8_t* __restrict codes, std::size_t count,
                          std::uint8_t* __restrict out) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = static_cast<std::uint8_t>(codes[2 * i] | codes[2 * i + 1] << 4);
  }
}

TERN_LOOP void unpack_pairs(const std::uint8_t* __restrict bytes, std::size_t count,
                            std::uint8_t* __restrict codes) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    codes[2 * i] = bytes[i] & 15;
    codes[2 * i + 1] = bytes[i] >> 4;
  }
}

inline constexpr std::size_t kRun = 64;

TERN_LOOP void pack_tile(const std::uint8_t* __restrict codes,
                         std::uint8_t* __restrict out) noexcept {
  for (std::size_t i = 0; i < kRun; ++i) {
    out[i] =
        static_cast<std::uint8_t>(81 * codes[i] + 27 * codes[kRun + i] + 9 * codes[2 * kRun + i] +
                                  3 * codes[3 * kRun + i] + codes[4 * kRun + i]);
  }
}

// Each digit is what the thresholds of the weight say, without a division.
TERN_LOOP std::uint8_t take_digit(std::uint8_t& column, std::uint8_t weight) noexcept {
  const auto twice = static_cast<std::uint8_t>(2 * weight);
  const auto digit =
      static_cast<std::uint8_t>((column >= weight ? 1 : 0) + (column >= twice ? 1 : 0));
  column = static_cast<std::uint8_t>(column - (column >= twice    ? twice
                                               : column >= weight ? weight
                                                                  : std::uint8_t{0}));
  return digit;
}

TERN_LOOP void unpack_tile(const std::uint8_t* __restrict bytes,
                           std::uint8_t* __restrict codes) noexcept {
  for (std::size_t i = 0; i < kRun; ++i) {
    std::uint8_t column = bytes[i];
    codes[i] = take_digit(column, 81);
    codes[kRun + i] = take_digit(column, 27);
    codes[2 * kRun + i] = take_digit(column, 9);
    codes[3 * kRun + i] = take_digit(column, 3);
    codes[4 * kRun + i] = column;
  }
}

}  // namespace tern::codec::quantizer::loops

#undef TERN_LOOP

// A table of functions of the enclosing namespace and target, each one a loop from above.
#define TERN_DRAW_TABLE(table)                                                                    \
  std::uint32_t largest(const float* values, std::size_t count) noexcept {                        \
    return loops::largest(values, count);                                                         \
  }                                                                                               \
  void squares(const float* values, std::size_t count, double* lanes) noexcept {                  \
    loops::squares(values, count, lanes);                                                         \
  }                                                                                               \
  void draw(const Draw& request, std::uint8_t* codes) noexcept { loops::draw(request, codes); }   \
  std::uint32_t dot(const Draw& request, const std::uint8_t* codes, double* lanes) noexcept {     \
    return loops::dot(request, codes, lanes);                                                     \
  }                                                                                               \
  void expand(const std::uint8_t* codes, std::size_t count, const Grid& grid,                     \
              float* out) noexcept {                                                              \
    loops::expand(codes, count, grid, out);                                                       \
  }                                                                                               \
  std::uint8_t largest_code(const std::uint8_t* codes, std::size_t count) noexcept {              \
    return loops::largest_code(codes, count);                                                     \
  }                                                                                               \
  void pack_pairs(const std::uint8_t* codes, std::size_t count, std::uint8_t* out) noexcept {     \
    loops::pack_pairs(codes, count, out);                                                         \
  }                                                                                               \
  void unpack_pairs(const std::uint8_t* bytes, std::size_t count, std::uint8_t* codes) noexcept { \
    loops::unpack_pairs(bytes, count, codes);                                                     \
  }                                                                                               \
  void pack_tile(const std::uint8_t* codes, std::uint8_t* out) noexcept {                         \
    loops::pack_tile(codes, out);                                                                 \
  }                                                                                               \
  void unpack_tile(const std::uint8_t* bytes, std::uint8_t* codes) noexcept {                     \
    loops::unpack_tile(bytes, codes);                                                             \
  }                                                                                               \
  constexpr DrawKernels table = {largest,      squares,    draw,         dot,       expand,       \
                                 largest_code, pack_pairs, unpack_pairs, pack_tile, unpack_tile}
