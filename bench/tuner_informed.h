#pragma once

// What a policy would have reached that knows all that can be known before an op: the true times of
// every pair of recipes at all ops before it, and nothing of the op itself.

#include <array>
#include <cstddef>
#include <vector>

namespace tern::bench {

// Three of them, which differ in how much of the past they go by: the last op, which is best where
// states last; some eight; or all, which is best where ops are independent. The first op of each is
// raw: nothing was measured.
class InformedPolicies {
 public:
  explicit InformedPolicies(std::vector<bool> allowed);

  // The times of all pairs at the next op, at `reduce * candidates + broadcast`.
  void see(const std::vector<double>& times);

  // By op, the times of the one that was the fastest over all of them.
  const std::vector<double>& best() const;

 private:
  struct Follower {
    double fade = 0.0;         // of what was before, at each op
    std::vector<double> past;  // faded sums, by pair
    std::vector<double> taken_ns;
    double total_ns = 0.0;
  };

  std::vector<std::size_t> pairs_;  // that are allowed; the first is raw
  std::array<Follower, 3> followers_;
};

}  // namespace tern::bench
