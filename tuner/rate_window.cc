#include "tuner/rate_window.h"

#include <algorithm>
#include <cmath>

namespace tern::tuner {
namespace {

constexpr double kFade = 0.8;           // weight of a sample by that of the next newer one
constexpr double kChange = 1.6;         // so many times off the median is no noise
constexpr double kWorthRaising = 1.05;  // below that a bound says nothing new

}  // namespace

void RateWindow::observe(double bytes_per_s, bool limited) noexcept {
  if (!(bytes_per_s > 0.0) || !std::isfinite(bytes_per_s)) return;
  const double before = median();
  if (limited) {
    ++limited_since_;
    may_be_faster_ = false;
    if (known() && bytes_per_s < kWorthRaising * mean()) return;
  } else {
    limited_since_ = 0;
  }
  may_be_faster_ = known() && bytes_per_s > kChange * before;
  std::move_backward(samples_.begin(), samples_.end() - 1, samples_.end());
  samples_[0] = bytes_per_s;
  count_ = std::min(count_ + 1, kSamples);
  forget_before_change();
}

void RateWindow::forget_before_change() noexcept {
  if (count_ < 3) return;
  std::array<double, kSamples> older{};
  std::copy(samples_.begin() + 2, samples_.begin() + static_cast<std::ptrdiff_t>(count_),
            older.begin());
  const std::size_t n = count_ - 2;
  std::sort(older.begin(), older.begin() + static_cast<std::ptrdiff_t>(n));
  const double median = older[n / 2];
  const bool faster = samples_[0] > kChange * median && samples_[1] > kChange * median;
  const bool slower = samples_[0] * kChange < median && samples_[1] * kChange < median;
  if (!faster && !slower) return;
  count_ = 2;
  ++changes_;
  may_be_faster_ = faster && limited_since_ > 0;
}

double RateWindow::weight(std::size_t age) const noexcept {
  const double all = (1.0 - std::pow(kFade, static_cast<double>(count_))) / (1.0 - kFade);
  return std::pow(kFade, static_cast<double>(age)) / all;
}

double RateWindow::mean() const noexcept {
  double sum = 0.0;
  for (std::size_t i = 0; i < count_; ++i) sum += weight(i) * samples_[i];
  return sum;
}

double RateWindow::median() const noexcept {
  std::array<double, kSamples> sorted = samples_;
  const auto end = sorted.begin() + static_cast<std::ptrdiff_t>(count_);
  std::sort(sorted.begin(), end);
  return count_ == 0 ? 0.0 : sorted[count_ / 2];
}

}  // namespace tern::tuner
