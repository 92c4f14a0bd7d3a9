#include "bench/tuner_link.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>

namespace tern::bench {
namespace {

// The same on every platform, which the distributions of the standard library are not.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : engine_(seed) {}
  double uniform() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }
  bool one_in(double mean) { return uniform() * mean < 1.0; }

 private:
  std::mt19937_64 engine_;
};

struct Switching {
  std::size_t ops;
  std::uint64_t seed;
  double mean_ops;  // that a state lasts
};

// Two states by turns.
template <typename State>
Trace two_states(std::string name, const Switching& switching, State&& state) {
  const auto& [ops, seed, mean_ops] = switching;
  Trace trace{std::move(name), {}, {}};
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
  Trace trace{"steps", {}, {}};
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
  Trace trace{"random walk", {}, {}};
  Draws draws(seed);
  int place = static_cast<int>(std::log(10.0) / kGrid);
  const int lowest = static_cast<int>(std::log(0.04) / kGrid);
  const int highest = static_cast<int>(std::log(200.0) / kGrid);
  for (std::size_t i = 0; i < ops; ++i) {
    place = std::clamp(place + static_cast<int>(draws.uniform() * 7.0) - 3, lowest, highest);
    trace.steps.push_back({std::exp(kGrid * place), 1.0});
  }
  return trace;
}

Trace markov_trace(std::size_t ops, std::uint64_t seed) {
  return two_states("Markov 100 and 6.4", {ops, seed, 50.0}, [](bool slow) {
    return WorldState{slow ? 6.4 : 100.0, 1.0};
  });
}

Trace spike_trace(std::size_t ops, std::uint64_t seed) {
  Trace trace{"24, 10 % spikes to 0.8", {}, {}};
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
  return traces;
}

}  // namespace tern::bench
