#pragma once

// What a link delivers, from samples of bytes per second.

#include <array>
#include <cstddef>
#include <cstdint>

namespace tern::tuner {

// What a sample shows of its link.
enum class Evidence : std::uint8_t {
  full,    // its rate
  passed,  // that large blocks pass at this rate, which may be all that their sender can do
  limited  // what a sender with little to send has seen
};

// A sender that compresses well does not fill its link, and what it measures then is itself. Such a
// sample only shows that the link is at least so fast: it may raise the estimate and never lower
// it. (BBR's rule for application-limited samples: Cardwell et al., ACM Queue 14(5), 2016,
// "delivery rate samples".) Of small blocks (`limited`), a single one may be a burst that a shaper
// let through, so that there is at most one in the window, and alone it proves no change: it is a
// reason to look. Large blocks (`passed`) count as a full link does, but that they never lower the
// estimate: without them a link that is slow now and then would be known by its slow moments alone,
// which are all that fills it.
class RateWindow {
 public:
  static constexpr std::size_t kSamples = 8;

  void observe(double bytes_per_s, Evidence evidence) noexcept;
  void observe(double bytes_per_s, bool limited) noexcept {
    observe(bytes_per_s, limited ? Evidence::limited : Evidence::full);
  }

  bool known() const noexcept { return count_ > 0; }
  std::size_t count() const noexcept { return count_; }
  // 0 is the newest.
  double sample(std::size_t age) const noexcept { return samples_[age]; }
  // Of a sample in a mean over all of them; they sum to one.
  double weight(std::size_t age) const noexcept;
  double mean() const noexcept { return mean_; }
  double median() const noexcept;
  // Whether it is beyond doubt: each of the last eight rates that were seen is well above each of
  // the other's. Limited ones count too: they err downwards, and whom nobody waits for has no
  // others.
  bool clearly_faster_than(const RateWindow& other) const noexcept;
  // How often the newest samples were so far from the rest that the rest was forgotten.
  std::uint64_t changes() const noexcept { return changes_; }
  // The newest sample was far above the others: the link may be faster than all that is known of
  // it.
  bool may_be_faster() const noexcept { return may_be_faster_; }
  // Samples since the last one that a full link made: how old the knowledge is.
  std::uint64_t limited_since() const noexcept { return limited_since_; }

 private:
  void push(double bytes_per_s) noexcept;
  bool take_limited(double bytes_per_s) noexcept;
  void take_full(double bytes_per_s) noexcept;
  bool take_passed(double bytes_per_s, double before) noexcept;
  void forget_before_change(bool after_bound) noexcept;

  std::array<double, kSamples> samples_{};  // newest first
  std::size_t count_ = 0;
  std::array<double, kSamples> seen_{};  // the last ones, limited or not, in no order
  std::uint64_t seen_count_ = 0;
  double mean_ = 0.0;
  std::uint64_t changes_ = 0;
  std::uint64_t limited_since_ = 0;
  bool newest_is_bound_ = false;
  bool may_be_faster_ = false;
};

}  // namespace tern::tuner
