#pragma once

// The truth of the simulation: how long an op takes in a state of the world, for any way to send
// it.

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "bench/tuner_link.h"
#include "bench/tuner_pipeline.h"
#include "bench/tuner_samples.h"
#include "tuner/tensor_policy.h"

namespace tern::bench {

// How one node sends an op.
struct Sending {
  tuner::CandidateIndex reduce = tuner::kRaw;
  tuner::CandidateIndex broadcast = tuner::kRaw;
  std::uint8_t probe_chunks = 0;

  friend bool operator==(const Sending&, const Sending&) = default;
};
Sending sending_of(const tuner::Choice& choice);

// How a world differs from the one that was recorded; the tuner's model has no term for most of it.
struct Oddity {
  std::string recipe;  // whose encoder ...
  std::uint32_t stall_every = 0;
  double stall_ns = 0.0;     // ... stops for so long at every so many blocks on a lane
  double swing = 0.0;        // ... takes up to so much longer or shorter, depending on the data,
  std::size_t period = 200;  // which returns after so many ops
  double codecs = 1.0;       // all of them take so many times longer than those that were recorded
  // So many times as long as the tuner assumes at first: a lane for each byte, and for each block.
  double lane_byte = 1.0;
  double lane_chunk = 1.0;
  // By candidate, on a lane by what the shadow measures; empty: what caches make of all alike.
  std::vector<double> on_lane;
  bool recorded_ops = false;  // times are those of the real daemon
};

// Factors of one op; 1 is as expected.
struct Noise {
  double rate = 1.0;
  double codec = 1.0;
  double lane = 1.0;
};

class TunerWorld {
 public:
  // `samples` must outlive it.
  TunerWorld(const TunerSamples& samples, double bytes, Oddity oddity = {});

  const TunerSamples& samples() const { return samples_; }
  double bytes() const { return bytes_; }
  double round_trip_ns() const { return kRoundTripNs; }

  // Without noise.
  double expected_ns(const WorldState& state, std::size_t op,
                     const std::array<Sending, 2>& sending);
  // The same of all pairs of candidates, one for each leg, that both nodes send by: at
  // `reduce * candidates + broadcast`.
  const std::vector<double>& pair_times(const WorldState& state, std::size_t op);
  std::size_t candidates() const { return samples_.candidates.size(); }

  PipelineOutcome run(const WorldState& state, std::size_t op,
                      const std::array<Sending, 2>& sending, const Noise& noise) const;

  // What the shadow sees of a candidate: the codec alone, on a core of its own.
  CodecSample shadow(tuner::CandidateIndex candidate, std::size_t op) const;

 private:
  static constexpr double kRoundTripNs = 50e3;
  // A lane's caches hold other things too.
  static constexpr double kOnLane = 1.1;

  std::uint64_t place(const WorldState& state, std::size_t op);
  double slowness(tuner::CandidateIndex candidate, std::size_t op) const;
  StageCost cost(tuner::CandidateIndex candidate, std::size_t op, double noise) const;
  PipelineOutcome computed(const WorldState& state, std::size_t op,
                           const std::array<Sending, 2>& sending, const Noise& noise) const;
  double recorded_ns(const std::array<Sending, 2>& sending, double rate) const;
  double recorded_ns(tuner::CandidateIndex candidate, double rate) const;

  const TunerSamples& samples_;
  double bytes_;
  Oddity oddity_;
  std::vector<std::vector<RecordedOp>> recorded_;  // by candidate, of a size near to bytes_
  std::map<std::array<double, 3>, std::uint64_t> places_;
  std::unordered_map<std::uint64_t, double> times_;
  std::unordered_map<std::uint64_t, std::vector<double>> pairs_;  // by place
};

}  // namespace tern::bench
