#pragma once

#include <string>

#include "ctl/session.h"

namespace tern::ctl {

// All that ternctl can find out about the daemon, in one archive for a bug report: answers,
// settings without secrets, the log, flight records, the counters file. No contents of tensors, no
// keys. What cannot be had, perhaps because the daemon is dead, is said inside. `path` empty: a
// name with host and time, in the current directory.
ExitCode write_dump(const Session& session, std::string path);

}  // namespace tern::ctl
