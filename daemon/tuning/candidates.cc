#include "daemon/tuning/candidates.h"

#include <sstream>
#include <utility>

#include "codec/recipe.h"

namespace tern::daemon {

std::vector<std::string> split_candidates(const std::string& text) {
  std::istringstream words(text);
  std::vector<std::string> candidates;
  for (std::string word; words >> word;) candidates.push_back(word);
  return candidates;
}

Result<Candidates> read_candidates(const std::vector<std::string>& texts) {
  std::vector<tuner::Candidate> candidates;
  candidates.reserve(texts.size());
  for (const std::string& text : texts) candidates.push_back({text, false});
  if (candidates.empty()) candidates = tuner::usual_candidates();
  if (candidates.size() > tuner::kMaxCandidates) {
    return fail(Errc::invalid_argument,
                "candidates: at most " + std::to_string(tuner::kMaxCandidates) + " recipes");
  }
  auto recipes = std::make_shared<CandidateRecipes>();
  for (tuner::Candidate& candidate : candidates) {
    auto recipe = codec::parse_recipe(candidate.recipe);
    if (!recipe) return fail(Errc::bad_recipe, "candidates: " + recipe.error().text);
    const bool lossy = codec::is_lossy(*recipe);
    if (recipe->automatic || (lossy && recipe->memory != codec::Memory::ef) ||
        codec::scans_tensor(*recipe) || recipe->compressor == codec::Compressor::xordelta) {
      return fail(Errc::bad_recipe,
                  "candidates: " + candidate.recipe +
                      " cannot be one: they are raw, lossless, and recipes ef(...) without "
                      "scale=tensor, between which the tuner may change at any chunk");
    }
    candidate.lossless = !lossy;
    recipes->push_back(*recipe);
  }
  if (candidates.front().recipe != "raw") {
    return fail(Errc::bad_recipe, "candidates: the first must be raw");
  }
  return Candidates{std::move(candidates), std::move(recipes)};
}

}  // namespace tern::daemon
