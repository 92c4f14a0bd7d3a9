#pragma once

// How much a tensor may lose. docs/tuner.md explains the numbers.

#include <cstdint>
#include <optional>
#include <string_view>

namespace tern::tuner {

enum class Level : std::uint8_t { lossless = 0, conservative = 1, balanced = 2, aggressive = 3 };

// Both are hard: a recipe beyond the first is not used, a tensor beyond the second raises an alarm.
struct Bounds {
  // Share of the energy (sum of squares) of what is encoded, gradient and residual together, that
  // one encoding may leave out. 0: bit for bit.
  double loss = 0.0;
  // Length of the residual by the length of the gradient: how many steps' worth is owed.
  double residual = 0.0;

  friend bool operator==(const Bounds&, const Bounds&) = default;
};

Bounds bounds_of(Level level) noexcept;
std::optional<Level> parse_level(std::string_view text) noexcept;
std::string_view level_name(Level level) noexcept;

// The next safer level; lossless has none and stays.
Level safer(Level level) noexcept;

}  // namespace tern::tuner
