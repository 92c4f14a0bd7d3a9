#pragma once

// What happens to the world from op to op.

#include <cstdint>
#include <string>
#include <vector>

namespace tern::bench {

// During one op.
struct WorldState {
  double gbit = 0.0;  // each way
  double load = 1.0;  // a lane's work takes so many times longer: others use its core
};

struct Trace {
  std::string name;
  std::vector<WorldState> steps;
  std::vector<std::size_t> changes;  // steps that begin something else, for the time to recover
  double regret = 0.03;              // that the tuner may have on it
};

Trace constant_trace(double gbit, std::size_t ops);
Trace step_trace(std::size_t ops);
// All others depend on the seed.
Trace random_walk_trace(std::size_t ops, std::uint64_t seed);
Trace markov_trace(std::size_t ops, std::uint64_t seed);
Trace spike_trace(std::size_t ops, std::uint64_t seed);
Trace competing_job_trace(std::size_t ops, std::uint64_t seed);
Trace busy_core_trace(std::size_t ops, std::uint64_t seed);
Trace two_jobs_trace(std::size_t ops, std::uint64_t seed);

// By the names that they have in tables: "1 Gbit/s", "steps", "random walk", ...
std::vector<Trace> all_traces(std::size_t ops, std::uint64_t seed);

}  // namespace tern::bench
