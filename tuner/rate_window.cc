#include "tuner/rate_window.h"

#include <algorithm>
#include <cmath>

namespace tern::tuner {
namespace {

using Samples = std::array<double, RateWindow::kSamples>;

constexpr double kFade = 0.8;            // weight of a sample by that of the next newer one
constexpr double kChange = 1.6;          // so many times off the median is no noise
constexpr double kBeyondNoise = 1.25;    // of a lower bound, which errs downwards
constexpr double kClearlyFaster = 1.25;  // so that noise decides nothing
constexpr double kBeyondDoubt = 3.0;     // large blocks that pass so much faster need no second
constexpr double kAsFast = 0.9;          // but for noise
constexpr double kWorthRaising = 1.05;   // below that a bound says nothing new

// [count - 1][age]: the weight of a sample among so many.
constexpr auto kWeights = [] {
  std::array<Samples, RateWindow::kSamples> weights{};
  for (std::size_t count = 1; count <= RateWindow::kSamples; ++count) {
    double sum = 0.0;
    double one = 1.0;
    for (std::size_t age = 0; age < count; ++age, one *= kFade) sum += one;
    one = 1.0 / sum;
    for (std::size_t age = 0; age < count; ++age, one *= kFade) weights[count - 1][age] = one;
  }
  return weights;
}();

// Of the samples from `first` to `end`; 0 if there are none.
double median_of(const Samples& samples, std::size_t first, std::size_t end) noexcept {
  Samples sorted{};
  std::size_t count = 0;
  for (std::size_t i = first; i < end && i < samples.size(); ++i, ++count) {
    std::size_t place = count;
    for (; place > 0 && sorted[place - 1] > samples[i]; --place) sorted[place] = sorted[place - 1];
    sorted[place] = samples[i];
  }
  return sorted[count / 2];
}

}  // namespace

void RateWindow::push(double bytes_per_s) noexcept {
  for (std::size_t age = kSamples - 1; age > 0; --age) samples_[age] = samples_[age - 1];
  samples_[0] = bytes_per_s;
  count_ = std::min(count_ + 1, kSamples);
}

void RateWindow::observe(double bytes_per_s, Evidence evidence) noexcept {
  if (!(bytes_per_s > 0.0) || !std::isfinite(bytes_per_s)) return;
  seen_[seen_count_++ % kSamples] = bytes_per_s;
  const double before = median();
  const bool limited = evidence == Evidence::limited;
  may_be_faster_ = known() && bytes_per_s > (limited ? kBeyondNoise : kChange) * before;
  limited_since_ = evidence == Evidence::full ? 0 : limited_since_ + 1;
  if (limited && !take_limited(bytes_per_s)) return;
  if (evidence == Evidence::passed && !take_passed(bytes_per_s, before)) return;
  if (evidence == Evidence::full) take_full(bytes_per_s);
  mean_ = 0.0;
  for (std::size_t age = 0; age < count_; ++age) mean_ += weight(age) * samples_[age];
}

// False: it says nothing new.
bool RateWindow::take_limited(double bytes_per_s) noexcept {
  if (known() && bytes_per_s < kWorthRaising * mean_) return false;
  if (newest_is_bound_) {
    samples_[0] = std::max(samples_[0], bytes_per_s);
  } else {
    push(bytes_per_s);
  }
  newest_is_bound_ = true;
  return true;
}

void RateWindow::take_full(double bytes_per_s) noexcept {
  const bool after_bound = newest_is_bound_;
  // A full link that is slower than a bound: that was a burst, or is long ago.
  if (after_bound && bytes_per_s < samples_[0]) {
    samples_[0] = bytes_per_s;
  } else {
    push(bytes_per_s);
  }
  newest_is_bound_ = false;
  forget_before_change(after_bound);
}

// False: the link is known to be faster.
bool RateWindow::take_passed(double bytes_per_s, double before) noexcept {
  if (bytes_per_s < kAsFast * before) return false;
  const bool after_bound = newest_is_bound_;
  push(std::max(bytes_per_s, before));
  newest_is_bound_ = false;
  if (bytes_per_s > kBeyondDoubt * before && count_ > 1) {
    count_ = 1;
    ++changes_;
    may_be_faster_ = false;
  } else {
    forget_before_change(after_bound);
  }
  return true;
}

void RateWindow::forget_before_change(bool after_bound) noexcept {
  if (count_ < 3) return;
  const double median = median_of(samples_, 2, count_);
  // What has come before as a lower bound needs to be above the noise only.
  const double enough = after_bound ? kBeyondNoise : kChange;
  const bool faster = samples_[0] > kChange * median && samples_[1] > enough * median;
  const bool slower = samples_[0] * kChange < median && samples_[1] * kChange < median;
  if (!faster && !slower) return;
  count_ = faster && after_bound ? 1 : 2;
  ++changes_;
  may_be_faster_ = false;
}

double RateWindow::weight(std::size_t age) const noexcept { return kWeights[count_ - 1][age]; }

bool RateWindow::clearly_faster_than(const RateWindow& other) const noexcept {
  if (seen_count_ < kSamples || other.seen_count_ < kSamples) return false;
  double most_of_other = *std::max_element(other.seen_.begin(), other.seen_.end());
  for (std::size_t age = 0; age < other.count_; ++age) {
    most_of_other = std::max(most_of_other, other.samples_[age]);
  }
  return *std::min_element(seen_.begin(), seen_.end()) > kClearlyFaster * most_of_other;
}

double RateWindow::median() const noexcept { return median_of(samples_, 0, count_); }

}  // namespace tern::tuner
