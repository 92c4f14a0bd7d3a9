#pragma once

// What systemd, or another supervisor that speaks its protocols, is told and hands over. Without
// one nothing is sent and nothing was handed over, so nobody needs to ask whether there is one.

#include <cstdint>
#include <string>

#include "base/fd.h"
#include "base/result.h"

namespace tern::daemon {

class Supervisor {
 public:
  // Every text is for people, one line, shown by `systemctl status`.
  void ready(const std::string& status);
  void reloading();
  void stopping();
  void alive();                          // feeds the watchdog
  void status(const std::string& text);  // sent when it differs from the last one

  // Without alive() for so long the supervisor kills the daemon; 0: it does not watch.
  static std::uint64_t watchdog_ns();

 private:
  void notify(const std::string& state);

  std::string last_status_;
};

// The listening socket for clients that the supervisor made (ternd.socket); empty: it made none, or
// this has been called before. An error names what else was handed over: a socket of another kind,
// several, or one at another path than `path`.
Result<Fd> take_client_socket(const std::string& path);

}  // namespace tern::daemon
