#pragma once

// A run of two tuners, one on each node, through a trace, and what others would have made of it.

#include <cstdint>
#include <string>
#include <vector>

#include "bench/tuner_world.h"
#include "tuner/tuner.h"

namespace tern::bench {

struct ContestSetting {
  tuner::Level level = tuner::Level::balanced;
  std::uint64_t seed = 1;
  tuner::Settings settings;
  // Ops at which the gradient becomes so many times longer for good.
  std::vector<std::size_t> norm_jumps;
};

struct OpRecord {
  double tuner_ns = 0.0;   // all times as expected, without noise
  double oracle_ns = 0.0;  // the best recipe that the level and alarms allow at this op
  double pair_ns = 0.0;    // the best pair of them, one for each leg
  double raw_ns = 0.0;
  Sending first;  // of node 0
};

struct ContestResult {
  std::string trace;
  double bytes = 0.0;
  std::vector<OpRecord> ops;
  std::vector<double> static_ns;  // by candidate, the same recipe at all ops; 0: not allowed
  std::uint64_t switches = 0;     // of node 0
  std::uint64_t probes = 0;
  std::uint64_t alarms = 0;
  std::uint64_t violations = 0;       // ops of a node that lost more than was allowed
  std::vector<std::size_t> recovery;  // ops after a change until within 10 % of the oracle

  double tuner_ns() const;
  double oracle_ns() const;
  double raw_ns() const;
  double pair_ns() const;
  double regret() const { return tuner_ns() / oracle_ns() - 1.0; }
  double best_static_ns() const;
  // The largest time of so many ops in a row by that of raw, minus 1.
  double worst_window(std::size_t ops = 50) const;
  std::size_t longest_recovery() const;
};

ContestResult run_contest(TunerWorld& world, const Trace& trace, const ContestSetting& setting);

}  // namespace tern::bench
