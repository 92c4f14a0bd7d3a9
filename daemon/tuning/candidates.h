#pragma once

// The recipes between which the tuner may change at any chunk.

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "daemon/tensor/tensor_tuning.h"
#include "tuner/tuner.h"

namespace tern::daemon {

// The same list, as the tuner has it and as lanes do.
struct Candidates {
  std::vector<tuner::Candidate> texts;
  std::shared_ptr<const CandidateRecipes> recipes;
};

// The text of a setting to its recipes: separated by spaces.
std::vector<std::string> split_candidates(const std::string& text);
// Raw first. Empty: the usual ones.
Result<Candidates> read_candidates(const std::vector<std::string>& texts);

}  // namespace tern::daemon
