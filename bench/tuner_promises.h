#pragma once

// What a run is held to: docs/tuner.md, "What the tuner promises".

#include <cstddef>
#include <string>
#include <vector>

#include "bench/tuner_contest.h"

namespace tern::bench {

// Over a number of ops in a row, against raw.
struct Window {
  std::size_t first = 0;
  double slower = -1.0;    // than raw, after what changes may cost is taken off
  double informed = -1.0;  // the same of who knew all before
};

// How long after a change it took until the best recipe was in use.
struct Recovery {
  std::size_t change = 0;
  std::size_t ops = 0;
  std::size_t allowed = 0;  // three if it is one by a factor of two, else ten
};

class Promises {
 public:
  static constexpr std::size_t kWindow = 50;  // ops; and at first nothing is promised for as many
  static constexpr double kSlower = 0.03;
  static constexpr std::size_t kCostOfChange = 3;  // ops

  explicit Promises(const ContestResult& result);

  const Window& worst_window() const { return worst_; }
  const std::vector<Recovery>& recoveries() const { return recoveries_; }
  std::size_t late_recoveries() const;
  // The most in so many ops without a change, those aside that an alarm makes.
  std::size_t most_switches() const { return most_switches_; }
  // What the loss of the worst window to raw is made of, and that of the whole run to the oracle:
  // the most first.
  std::string cause_of_window() const;
  std::string cause_of_regret() const;

 private:
  void find_worst_window();
  void find_recoveries();
  void count_switches();
  // By op, what it took longer than raw, without what changes may cost.
  std::vector<double> losses(double OpRecord::*time) const;
  std::string cause(std::size_t first, std::size_t end, double OpRecord::*time) const;
  std::string kind_of(const OpRecord& op) const;
  bool changes_in(std::size_t begin, std::size_t end) const;

  const ContestResult& result_;
  Window worst_;
  std::vector<Recovery> recoveries_;
  std::size_t most_switches_ = 0;
};

}  // namespace tern::bench
