#pragma once

// What the simulator of the tuner knows of the world, recorded once and replayed ever after: it
// depends on no machine's speed and gives the same figures everywhere. docs/tuner.md says how the
// file is made.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "tuner/candidate.h"

namespace tern::bench {

// One recorded step of a tensor, for each byte of it.
struct CodecSample {
  double encode_ns = 0.0;
  double decode_ns = 0.0;
  double wire = 1.0;
  double loss = 0.0;  // energy left out by the energy of gradient and residual
};

struct RecordedCandidate {
  tuner::Candidate candidate;
  std::vector<CodecSample> samples;  // at least one; raw too
  CodecSample mean;
};

// An op of the real daemon on a link of that rate.
struct RecordedOp {
  std::string recipe;
  double bytes = 0.0;
  double rate = 0.0;  // bytes per second
  double ns = 0.0;
};

struct TunerSamples {
  double chunk_bytes = 0.0;
  double lane_byte_ns = 0.0;                  // of a lane, for each byte sent or received
  double lane_chunk_ns = 0.0;                 // and each block
  std::vector<RecordedCandidate> candidates;  // raw first
  std::vector<RecordedOp> ops;                // may be empty

  std::vector<tuner::Candidate> list() const;
};

// The error says what is missing or makes no sense.
Result<TunerSamples> parse_tuner_samples(const nlohmann::json& json);
Result<TunerSamples> read_tuner_samples(const std::string& path);

}  // namespace tern::bench
