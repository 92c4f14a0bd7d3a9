#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "ctl/session.h"

namespace tern::ctl {

// The counters as the daemon's own answer has them, from its file.
struct FileCounters {
  nlohmann::json counters;
  std::string note;  // whose they are, and whether it lives
};
Result<FileCounters> counters_of_file(const std::string& path);

// The file beside the control socket, for a daemon that did not answer with `why`. The error is
// `why` if there is no such file.
Result<FileCounters> last_counters(const Session& session, const Error& why);

}  // namespace tern::ctl
