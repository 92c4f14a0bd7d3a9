#pragma once

#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "tuner/tuner.h"

namespace tern::tuner {

inline Settings no_first_ops() {
  Settings settings;
  settings.guard.first_ops = 0;
  settings.policy.trial_every = 0;
  return settings;
}

// Two nodes, the other one is "b".
inline TensorInfo tensor(std::string name) {
  TensorInfo info;
  info.name = std::move(name);
  info.shape.bytes = 64 << 20;
  info.peers = {"b"};
  return info;
}

inline SampleMeasurement sample_of(CandidateIndex candidate) {
  constexpr double kWire[] = {1.0, 0.85, 0.5, 0.25, 0.13, 0.02, 0.006};
  constexpr double kLoss[] = {0.0, 0.0, 2e-6, 1e-4, 0.03, 0.8, 0.99};
  SampleMeasurement sample;
  sample.candidate = candidate;
  sample.bytes = 256 << 10;
  sample.block_bytes = static_cast<std::uint64_t>(kWire[candidate] * (256 << 10));
  sample.encode_ns = 0.25 * (256 << 10);
  sample.decode_ns = 0.15 * (256 << 10);
  sample.loss = kLoss[candidate];
  return sample;
}

inline void measure_all(Tuner& tuner, TensorKey key) {
  for (CandidateIndex one = 1; one < 7; ++one) tuner.observe_sample(key, sample_of(one));
}

inline void random_observations(Tuner& tuner, TensorKey key, std::mt19937_64& engine) {
  tuner.observe_sample(key, sample_of(static_cast<CandidateIndex>(1 + engine() % 6)));
  tuner.observe_rate("b", 1e6 * static_cast<double>(1 + engine() % 5000), engine() % 2 == 0);
  tuner.observe_peer("b", 1e6 * static_cast<double>(engine() % 5000), 1e4);
  tuner.observe_lane({1e6, 5e5, 1000 + engine() % 100'000, 1 + engine() % 50});
}

}  // namespace tern::tuner
