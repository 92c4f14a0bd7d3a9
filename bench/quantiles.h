#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace tern::bench {

// Of sorted values, by the nearest rank: the 0.99 of fewer than 100 values is the largest.
inline double quantile(const std::vector<double>& sorted, double share) {
  const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(sorted.size())));
  return sorted[std::max<std::size_t>(rank, 1) - 1];
}

// Of sorted values: of an even number the mean of the two in the middle.
inline double median(const std::vector<double>& sorted) {
  const std::size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

}  // namespace tern::bench
