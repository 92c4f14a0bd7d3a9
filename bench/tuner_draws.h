#pragma once

// Chance for the tuner's simulator: the same on every platform, which the distributions of the
// standard library are not.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>

namespace tern::bench {

class Draws {
 public:
  explicit Draws(std::uint64_t seed) : engine_(seed) {}

  double uniform() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }
  bool one_in(double mean) { return uniform() * mean < 1.0; }
  // From `low` to `high`, all ratios alike.
  double between(double low, double high) { return low * std::pow(high / low, uniform()); }
  // The noise of a measurement: about normal, within 2.4 deviations of 10 %.
  double noise() {
    constexpr double kDeviation = 0.1;
    const double sum = uniform() + uniform() + uniform() + uniform();
    return 1.0 + std::clamp((sum - 2.0) * std::sqrt(3.0), -2.4, 2.4) * kDeviation;
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace tern::bench
