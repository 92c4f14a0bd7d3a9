#pragma once

// The recipes that the tuner chooses among. It knows of a recipe what it has been told of it:
// whether it loses something, what it costs and what it saves. Candidate 0 is always raw.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tern::tuner {

struct Candidate {
  std::string recipe;     // its text
  bool lossless = false;  // bit for bit
};

// A place in the list of candidates.
using CandidateIndex = std::uint8_t;
inline constexpr CandidateIndex kRaw = 0;
inline constexpr CandidateIndex kNoCandidate = 0xff;
inline constexpr std::size_t kMaxCandidates = 16;

// Recipes with error feedback, from the safest to the most compressing; one for each rung between
// 32 bits and half a bit that trained as well as raw (docs/codecs.md), and 3LC at its most sparse,
// which only the level `aggressive` allows.
std::vector<Candidate> usual_candidates();

}  // namespace tern::tuner
