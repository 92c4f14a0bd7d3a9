#pragma once

#include "ctl/session.h"

namespace tern::ctl {

struct DrainOptions {
  double deadline_s = 600;
  bool cancel = false;
  bool no_wait = false;
  bool status = false;
  bool if_idle = false;
};

// Has the daemon refuse new jobs and end when the last of those that run has gone, or at the
// deadline. Says what the daemon waits for, as often as that changes, and returns when the daemon
// has ended: at once with `no_wait`, or when `cancel` takes it back. `status` asks and changes
// nothing. `if_idle` ends a daemon that nobody needs and leaves any other alone, also one that
// drains: then it returns `failed`.
ExitCode drain(const Session& session, const DrainOptions& options);

}  // namespace tern::ctl
