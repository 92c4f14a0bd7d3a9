#pragma once

// A ratio that is 1 as long as the world is as expected.

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

}  // namespace tern::tuner
