#pragma once

// How long candidates code: off the wire, where all of them are measured, and on a lane, where
// caches are shared and each is measured when it is in use.

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tuner/candidate.h"
#include "tuner/cost_model.h"

namespace tern::tuner {

// A chunk was encoded and decoded by a candidate off the wire.
struct SampleMeasurement {
  CandidateIndex candidate = kRaw;
  std::uint64_t bytes = 0;  // of the elements
  std::uint64_t block_bytes = 0;
  double encode_ns = 0.0;
  double decode_ns = 0.0;
  double loss = 0.0;  // energy left out by the energy of what was encoded
};

// A lane encoded so much.
struct LaneCoding {
  CandidateIndex candidate = kRaw;
  std::size_t size_class = 0;
  double encode_ns = 0.0;  // for each byte
};

class CodecSpeeds {
 public:
  static constexpr std::size_t kSizeClasses = 4;
  static std::size_t size_class(std::uint64_t chunk_bytes) noexcept;

  // For each byte.
  struct Speed {
    double encode_ns = 0.0, decode_ns = 0.0;
    bool known = false;
  };

  explicit CodecSpeeds(std::size_t candidates);

  void observe_shadow(const SampleMeasurement& sample);
  // How much longer it took than this candidate does on a lane whose core is its own; 0: it is too
  // new there to say.
  double load_of(const LaneCoding& coding) const noexcept;
  // `load` is how much longer lanes take at present because others use their cores.
  void observe_lane(const LaneCoding& coding, double load);

  // On a lane under that load; `wire` is not set.
  CodecCost on_lane(CandidateIndex candidate, std::size_t size_class, double load) const noexcept;

  // Across a restart.
  const Speed& shadow(CandidateIndex candidate, std::size_t size_class) const noexcept {
    return shadow_[candidate][size_class];
  }
  void set_shadow(CandidateIndex candidate, std::size_t size_class, const Speed& speed) noexcept {
    shadow_[candidate][size_class] = speed;
  }

 private:
  // What a candidate takes on a lane by what it takes in the shadow.
  struct OnLane {
    double ratio = 1.0;
    std::uint32_t uses = 0;
  };

  static bool can_compare(const LaneCoding& coding, const Speed& shadow) noexcept;
  Speed nearest(CandidateIndex candidate, std::size_t size_class) const noexcept;
  // Of candidates that no lane has used yet: that of the others.
  double ratio_of(CandidateIndex candidate) const noexcept;

  std::vector<std::array<Speed, kSizeClasses>> shadow_;  // by candidate
  std::vector<OnLane> on_lane_;
};

}  // namespace tern::tuner
