#pragma once

#include <string>
#include <vector>

#include "ctl/session.h"

namespace tern::ctl {

// `ternctl trace start`, `stop`, `status` and `merge`.
ExitCode start_trace(const Session& session);
ExitCode show_trace_status(const Session& session);
// Ends the recording, if it still runs, and writes what was recorded. On a failure it can be
// fetched again: the daemon keeps it until the next start.
ExitCode stop_trace(const Session& session, const std::string& path);
ExitCode merge_trace_files(const std::vector<std::string>& paths, const std::string& output);

}  // namespace tern::ctl
