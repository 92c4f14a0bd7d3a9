#pragma once

namespace tern::ctl {

// What ternctl's exit status says; documented in docs/control-protocol.md and never renumbered.
enum class ExitCode : int {
  ok = 0,
  failed = 1,             // the daemon answered with an error
  usage = 2,              // the command line is wrong
  daemon_absent = 3,      // nobody listens on the socket
  permission_denied = 4,  // by the socket's mode or by the daemon
  version_mismatch = 5,   // daemon and ternctl are of different times
  no_answer = 6,          // too late, cut off, or not the protocol
  unwell = 7,             // `health` or `doctor` found a fault
};

}  // namespace tern::ctl
