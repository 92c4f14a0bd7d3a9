#pragma once

// A run of two tuners, one on each node, through a trace, and what others would have made of it.

#include <cstdint>
#include <string>
#include <vector>

#include "bench/tuner_hostility.h"
#include "bench/tuner_world.h"
#include "tuner/tuner.h"

namespace tern::bench {

struct ContestSetting {
  tuner::Level level = tuner::Level::balanced;
  std::uint64_t seed = 1;
  tuner::Settings settings;
  Instruments instruments;
  // Ops at which the gradient becomes so many times longer for good.
  std::vector<std::size_t> norm_jumps;
};

// All times are expected ones, without noise.
struct OpRecord {
  double tuner_ns = 0.0;
  // By the best pair of recipes, one for each leg, that the level allows. It knows of no alarm.
  double oracle_ns = 0.0;
  double single_ns = 0.0;    // by the best recipe for both legs
  double informed_ns = 0.0;  // by who knows the truth of all ops before
  double raw_ns = 0.0;
  Sending first;  // of node 0
  Sending best;   // the oracle's
  bool trial = false;
  tuner::Alarm alarm = tuner::Alarm::none;  // that forbids recipes of the level
};

// Of the link, or of what a lane's work takes.
struct Change {
  std::size_t op = 0;  // the first that meets it
  double factor = 1.0;
};

struct ContestResult {
  std::string trace;
  std::vector<std::string> recipes;  // by candidate
  tuner::Level level = tuner::Level::balanced;
  double bytes = 0.0;
  std::uint64_t seed = 0;
  double aim = 0.0;  // what the regret may be
  std::vector<OpRecord> ops;
  std::vector<Change> changes;
  std::vector<double> static_ns;  // by candidate, the same recipe at all ops; 0: not allowed
  std::uint64_t switches = 0;     // of node 0
  std::uint64_t probes = 0;
  std::uint64_t alarms = 0;
  std::uint64_t violations = 0;  // ops of a node that lost more than was allowed

  double tuner_ns() const;
  double oracle_ns() const;
  double raw_ns() const;
  double regret() const { return tuner_ns() / oracle_ns() - 1.0; }
  // From that op on.
  double regret_from(std::size_t first) const;
  double informed_regret() const;
  // The best of static recipes.
  double best_static_ns() const;
};

ContestResult run_contest(TunerWorld& world, const Trace& trace, const ContestSetting& setting);

}  // namespace tern::bench
