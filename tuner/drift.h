#pragma once

// Ratios that are 1 as long as the world is as expected.

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace tern::tuner {

// Follows noisy samples slowly, and two in a row that are far off in the same direction at once:
// then it is the world that has changed.
class Drift {
 public:
  void observe(double sample) noexcept {
    const double off = sample / value_;
    const int side = off > kFar ? 1 : off * kFar < 1.0 ? -1 : 0;
    if (side != 0 && side == last_side_) {
      value_ = 0.5 * (sample + last_);
      last_side_ = 0;
      return;
    }
    last_side_ = side;
    last_ = sample;
    // A single sample that is far off counts for no more than the farthest that is not.
    const double counted = side > 0 ? kFar * value_ : side < 0 ? value_ / kFar : sample;
    value_ += kWeight * (counted - value_);
  }

  double value() const noexcept { return value_; }

 private:
  static constexpr double kFar = 1.5;
  static constexpr double kWeight = 0.1;

  double value_ = 1.0;
  double last_ = 1.0;
  int last_side_ = 0;
};

// What the model lacks: found out soon at first, and followed slowly whatever comes. A sample that
// is far off is of something else that has changed, and counts for no more than one that is not.
class Bias {
 public:
  void observe(double sample) noexcept {
    const double weight = std::max(kWeight, 1.0 / (2.0 + samples_++));
    value_ *= std::pow(std::clamp(sample / value_, 1.0 / kFar, kFar), weight);
  }

  double value() const noexcept { return value_; }

 private:
  static constexpr double kFar = 1.5;
  static constexpr double kWeight = 0.1;

  double value_ = 1.0;
  std::uint32_t samples_ = 0;
};

}  // namespace tern::tuner
