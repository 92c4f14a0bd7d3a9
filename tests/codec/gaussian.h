#pragma once

#include <cmath>
#include <cstdint>
#include <random>

namespace tern::codec {

// The values of std::normal_distribution<float>, bit for bit (Marsaglia's polar method, as
// libstdc++ has it). That asks for two logarithms of a long double for each uniform number, which
// clang does not compute in advance: they were two fifths of the time of these tests.
class Gaussian {
 public:
  explicit Gaussian(float sigma) noexcept : sigma_(sigma) {}

  float operator()(std::mt19937_64& random) noexcept {
    if (has_saved_) {
      has_saved_ = false;
      return saved_ * sigma_;
    }
    float x = 0, y = 0, radius = 0;
    do {
      x = 2.0f * uniform(random) - 1.0f;
      y = 2.0f * uniform(random) - 1.0f;
      radius = x * x + y * y;
    } while (radius > 1.0f || radius == 0.0f);
    const float factor = std::sqrt(-2 * std::log(radius) / radius);
    saved_ = x * factor;
    has_saved_ = true;
    return y * factor * sigma_;
  }

 private:
  // In [0, 1).
  static float uniform(std::mt19937_64& random) noexcept {
    const float value = static_cast<float>(random()) * 0x1p-64f;
    return value < 1.0f ? value : std::nextafter(1.0f, 0.0f);
  }

  float sigma_;
  float saved_ = 0;
  bool has_saved_ = false;
};

}  // namespace tern::codec
