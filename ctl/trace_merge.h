#pragma once

// Traces of several nodes as one.

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/result.h"

namespace tern::ctl {

// A trace that `ternctl trace stop` has written.
struct NamedTrace {
  std::string name;  // of the file
  const nlohmann::json* document;
};

// Each trace becomes a process of its own, on the clock of the first. How far two clocks are apart
// is what the nodes' links found, by way of other nodes if these two have no link; else what their
// calendars say. Returns a sentence for each trace but the first: by what, and how sure. A document
// that is no such trace is an error that names its file. `emit` gets event by event.
Result<std::vector<std::string>> merge_traces(
    const std::vector<NamedTrace>& traces,
    const std::function<void(const nlohmann::json& event)>& emit);

}  // namespace tern::ctl
