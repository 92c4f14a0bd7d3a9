#pragma once

#include <cstddef>
#include <span>

// Lloyd's algorithm (Lloyd, IEEE Transactions on Information Theory 1982; Max, 1960) in scalar
// arithmetic and a fixed order, so that every target trains the same levels. Private to
// codec/quantizer/.
namespace tern::codec::quantizer {

inline constexpr std::size_t kMostLevels = 64;

struct Sample {
  const float* values;
  std::size_t count;
  std::size_t stride;  // between the values that are looked at
};

// Levels as dense as a Gaussian of the sample's mean and deviation wants them. Requires: a power of
// two of levels, at most kMostLevels.
void first_levels(const Sample& sample, std::span<float> levels) noexcept;

// One iteration: every level becomes the mean of its cell. Levels of empty cells go where the error
// is largest; that is no step back, because nothing was near them. Returns the squared error of the
// levels as they were. Requires: ascending levels; leaves them so.
double improve(const Sample& sample, std::span<float> levels) noexcept;

// At most `most` iterations, fewer once they gain little.
void train(const Sample& sample, int most, std::span<float> levels) noexcept;

// `middles` has room for one less than the levels.
void find_middles(std::span<const float> levels, float* middles) noexcept;

}  // namespace tern::codec::quantizer
