#pragma once

// The last lines of the log, for `ternctl dump`: also where no journal keeps them, or where who
// asks may not read it.

#include <spdlog/sinks/sink.h>

#include <memory>
#include <string>
#include <vector>

namespace tern::daemon {

// One for the process.
std::shared_ptr<spdlog::sinks::sink> recent_log_sink();

// Oldest first, each with time and severity.
std::vector<std::string> recent_log();

}  // namespace tern::daemon
