#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bench/tuner_contest.h"
#include "bench/tuner_scenario.h"

namespace tern::bench {

// One line for each level, trace and payload: the mean over its seeds, or the worst of them where
// that is what counts; then the causes of what falls short. In Markdown, which reads well on a
// terminal too.
std::string tuner_table(const std::vector<ContestResult>& results);

// The rows, and the course of the first seed of each for pictures.
nlohmann::json tuner_json(const std::vector<ContestResult>& results,
                          const ScenarioOptions& options);

}  // namespace tern::bench
