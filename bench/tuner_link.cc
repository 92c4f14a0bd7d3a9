#include "bench/tuner_link.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "bench/tuner_draws.h"

namespace tern::bench {
namespace {

// What the tuner may lose where the world changes now and then, and where it does all the time.
constexpr double kOnSteps = 0.05;
constexpr double kOnChance = 0.08;

struct Switching {
  std::size_t ops;
  std::uint64_t seed;
  double mean_ops;  // that a state lasts
};

// Two states by turns.
template <typename State>
Trace two_states(std::string name, const Switching& switching, State&& state) {
  const auto& [ops, seed, mean_ops] = switching;
  Trace trace{std::move(name), {}, {}, kOnChance};
  Draws draws(seed);
  bool second = false;
  for (std::size_t i = 0; i < ops; ++i) {
    if (i > 0 && draws.one_in(mean_ops)) {
      second = !second;
      trace.changes.push_back(i);
    }
    trace.steps.push_back(state(second));
  }
  return trace;
}

}  // namespace

Trace constant_trace(double gbit, std::size_t ops) {
  return {fmt::format("{:g} Gbit/s", gbit), std::vector<WorldState>(ops, {gbit, 1.0}), {}};
}

Trace step_trace(std::size_t ops) {
  constexpr std::array<double, 7> kRates = {10.0, 0.5, 25.0, 1.0, 100.0, 0.1, 10.0};
  Trace trace{"steps", {}, {}, kOnSteps};
  for (std::size_t i = 0; i < ops; ++i) {
    const std::size_t step = i * kRates.size() / ops;
    if (i > 0 && step != (i - 1) * kRates.size() / ops) trace.changes.push_back(i);
    trace.steps.push_back({kRates[step], 1.0});
  }
  return trace;
}

// From 0.04 to 200 Gbit/s, by up to 15 % an op. The rates are those of a grid, so that the times of
// choices need not be computed at every op anew.
Trace random_walk_trace(std::size_t ops, std::uint64_t seed) {
  constexpr double kGrid = 0.05;
  Trace trace{"random walk", {}, {}, kOnChance};
  Draws draws(seed);
  int place = static_cast<int>(std::log(10.0) / kGrid);
  const int lowest = static_cast<int>(std::log(0.04) / kGrid);
  const int highest = static_cast<int>(std::log(200.0) / kGrid);
  int marked = place;
  for (std::size_t i = 0; i < ops; ++i) {
    place = std::clamp(place + static_cast<int>(draws.uniform() * 7.0) - 3, lowest, highest);
    trace.steps.push_back({std::exp(kGrid * place), 1.0});
    // By a quarter away from where it was called changed before.
    if (std::abs(place - marked) < static_cast<int>(0.25 / kGrid)) continue;
    marked = place;
    trace.changes.push_back(i);
  }
  return trace;
}

Trace markov_trace(std::size_t ops, std::uint64_t seed) {
  return two_states("Markov 100 and 6.4", {ops, seed, 50.0}, [](bool slow) {
    return WorldState{slow ? 6.4 : 100.0, 1.0};
  });
}

Trace spike_trace(std::size_t ops, std::uint64_t seed) {
  Trace trace{"24, 10 % spikes to 0.8", {}, {}, kOnChance};
  Draws draws(seed);
  for (std::size_t i = 0; i < ops; ++i) {
    trace.steps.push_back({draws.one_in(10.0) ? 0.8 : 24.0, 1.0});
  }
  return trace;
}

Trace competing_job_trace(std::size_t ops, std::uint64_t seed) {
  Draws draws(seed ^ 0x5eed);
  return two_states("competing job on 10", {ops, seed, 100.0}, [&](bool busy) {
    // What it leaves changes from op to op.
    return WorldState{busy ? 1.0 + std::floor(4.0 * draws.uniform()) : 10.0, 1.0};
  });
}

Trace busy_core_trace(std::size_t ops, std::uint64_t seed) {
  return two_states("busy core on 10", {ops, seed, 150.0}, [](bool busy) {
    return WorldState{10.0, busy ? 3.0 : 1.0};
  });
}

// Half of the ops meet those of the other job: on the link, and on the core.
Trace two_jobs_trace(std::size_t ops, std::uint64_t seed) {
  Trace trace{"two jobs on 10", {}, {}, kOnChance};
  Draws draws(seed);
  for (std::size_t i = 0; i < ops; ++i) {
    const bool meet = draws.one_in(2.0);
    trace.steps.push_back(meet ? WorldState{5.0, 1.5} : WorldState{10.0, 1.0});
  }
  return trace;
}

std::vector<Trace> all_traces(std::size_t ops, std::uint64_t seed) {
  std::vector<Trace> traces;
  for (const double gbit : {0.1, 1.0, 10.0, 25.0, 100.0}) {
    traces.push_back(constant_trace(gbit, ops));
  }
  traces.push_back(step_trace(ops));
  traces.push_back(random_walk_trace(ops, seed));
  traces.push_back(markov_trace(ops, seed));
  traces.push_back(spike_trace(ops, seed));
  traces.push_back(competing_job_trace(ops, seed));
  traces.push_back(busy_core_trace(ops, seed));
  traces.push_back(two_jobs_trace(ops, seed));
  return traces;
}

}  // namespace tern::bench
