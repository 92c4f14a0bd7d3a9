#pragma once

// What looking at other recipes and at the link may cost.

#include <algorithm>

namespace tern::tuner {

// A share of the time of all ops, which is saved up to some ops. So ops that look cost no more than
// the share in the long run, and in any fifty ops hardly more than what may be saved.
class Allowance {
 public:
  explicit Allowance(double saved_ops = 1.0) noexcept : saved_ops_(saved_ops) {}

  void earn(double op_ns, double share) noexcept {
    saved_ns_ = std::min(saved_ns_ + share * op_ns, saved_ops_ * op_ns);
  }
  bool covers(double ns) const noexcept { return ns <= saved_ns_; }
  void spend(double ns) noexcept { saved_ns_ -= std::max(0.0, ns); }

 private:
  double saved_ops_;
  double saved_ns_ = 0.0;
};

}  // namespace tern::tuner
