#include "bench/tuner_scenario.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>

#include "bench/tuner_hostility.h"

namespace tern::bench {
namespace {

// A world, and the traces that are run in it.
struct Scenario {
  Oddity oddity;
  std::vector<Trace> (*traces)(std::size_t ops, std::uint64_t seed);
  bool norm_jumps = false;
};

// One run of it, whatever the seed.
struct Place {
  tuner::Level level;
  double bytes;
  std::size_t trace;
};

Trace named(Trace trace, std::string name) {
  trace.name = std::move(name);
  return trace;
}

// A machine on which codecs are slow, so that fast links are better off without.
constexpr double kSlowCodecs = 4.0;

std::vector<Trace> with_slow_codecs(std::size_t ops, std::uint64_t seed) {
  auto traces = all_traces(ops, seed);
  for (Trace& trace : traces) trace.name += ", slow codecs";
  return traces;
}

std::vector<Trace> stalling(std::size_t ops, std::uint64_t) {
  return {named(constant_trace(10.0, ops), "3LC stalls, 10")};
}

std::vector<Trace> swinging(std::size_t ops, std::uint64_t) {
  return {named(constant_trace(1.0, ops), "3LC by data, 1")};
}

std::vector<Trace> alarming(std::size_t ops, std::uint64_t) {
  return {named(constant_trace(1.0, ops), "norm jumps, 1")};
}

// The links that the real daemon was measured on, and from one to the other.
std::vector<Trace> recorded(std::size_t ops, std::uint64_t seed) {
  Trace change = step_trace(ops);
  change.name = "daemon, steps";
  for (WorldState& state : change.steps) state.gbit = std::min(state.gbit, 10.0);
  Trace walk = named(random_walk_trace(ops, seed), "daemon, walk");
  for (WorldState& state : walk.steps) state.gbit = std::clamp(state.gbit, 0.1, 10.0);
  return {named(constant_trace(0.1, ops), "daemon, 0.1"),
          named(constant_trace(1.0, ops), "daemon, 1"),
          named(constant_trace(10.0, ops), "daemon, 10"), std::move(change), std::move(walk)};
}

std::vector<Scenario> all_scenarios(const TunerSamples& samples, double bytes) {
  std::vector<Scenario> result = {{{}, all_traces, false}};
  Oddity slow;
  slow.codecs = kSlowCodecs;
  result.push_back({slow, with_slow_codecs, false});
  Oddity stalls;
  stalls.recipe = "3lc:s=1";
  stalls.stall_every = 4;
  stalls.stall_ns = 1e6;
  result.push_back({stalls, stalling, false});
  Oddity swings;
  swings.recipe = "3lc:s=1";
  swings.swing = 0.6;
  result.push_back({swings, swinging, false});
  result.push_back({{}, alarming, true});
  Oddity real;
  real.recorded_ops = true;
  std::set<std::string> have;
  for (const RecordedOp& op : samples.ops) {
    if (std::abs(std::log2(op.bytes / bytes)) < 1.0) have.insert(op.recipe);
  }
  if (have.size() == samples.candidates.size()) result.push_back({real, recorded, false});
  return result;
}

}  // namespace

namespace {

// All seeds of one trace of a scenario, or none if it is not wanted.
std::vector<ContestResult> run_seeds(const TunerSamples& samples, const ScenarioOptions& options,
                                     const Scenario& scenario, const Place& place) {
  std::vector<ContestResult> results;
  for (std::size_t k = 0; k < options.seeds; ++k) {
    ContestSetting setting;
    setting.level = place.level;
    setting.seed = options.first_seed + k;
    setting.settings = options.settings;
    if (scenario.norm_jumps) setting.norm_jumps = {options.ops / 3, 2 * options.ops / 3};
    const Trace trace = scenario.traces(options.ops, setting.seed)[place.trace];
    const auto& wanted = options.traces;
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), trace.name) == wanted.end()) {
      break;
    }
    Oddity oddity = scenario.oddity;
    if (options.hostile) {
      oddity = hostile_world(oddity, samples.candidates.size(), setting.seed);
      setting.instruments = hostile_instruments(setting.seed);
    }
    TunerWorld world(samples, place.bytes, oddity);
    results.push_back(run_contest(world, trace, setting));
  }
  return results;
}

}  // namespace

std::vector<ContestResult> run_scenarios(const TunerSamples& samples,
                                         const ScenarioOptions& options) {
  std::vector<ContestResult> results;
  for (const tuner::Level level : options.levels) {
    for (const double bytes : options.bytes) {
      for (const Scenario& scenario : all_scenarios(samples, bytes)) {
        const std::size_t count = scenario.traces(options.ops, options.first_seed).size();
        for (std::size_t i = 0; i < count; ++i) {
          auto fresh = run_seeds(samples, options, scenario, {level, bytes, i});
          std::move(fresh.begin(), fresh.end(), std::back_inserter(results));
        }
      }
    }
  }
  return results;
}

}  // namespace tern::bench
