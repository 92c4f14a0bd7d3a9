#pragma once

// The set of runs that the tuner is judged by.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/tuner_contest.h"

namespace tern::bench {

struct ScenarioOptions {
  std::vector<tuner::Level> levels = {tuner::Level::balanced};
  // Worlds unlike what the model assumes, and nodes that measure badly; else neither.
  bool hostile = true;
  std::vector<double> bytes = {4.0 * (1 << 20), 100e6};
  std::size_t ops = 3000;
  std::uint64_t first_seed = 1;
  std::size_t seeds = 1;
  std::vector<std::string> traces;  // only these; empty: all
  tuner::Settings settings;
};

// Traces and payloads, one result for each and each seed, the seeds of one after another. Beside
// the links: recipes that the tuner's model has no term for, and alarms.
std::vector<ContestResult> run_scenarios(const TunerSamples& samples,
                                         const ScenarioOptions& options);

}  // namespace tern::bench
