#pragma once

// Decides when the supervisor's watchdog is fed: only after every lane has shown a sign of
// life since the last time. So a lane that hangs starves the watchdog, and so does a conductor that
// hangs, which never gets here.

#include <cstdint>
#include <functional>
#include <vector>

#include "daemon/service/sign_of_life.h"

namespace tern::daemon {

class Watchdog {
 public:
  // REQUIRES: the signs outlive this. wake(i) makes the thread of sign i look at it. timeout_ns is
  // the supervisor's patience.
  Watchdog(std::uint64_t timeout_ns, std::vector<SignOfLife*> signs,
           std::function<void(std::size_t)> wake);

  // True: the supervisor is to be fed now. Call it at next_deadline_ns() at the latest.
  bool tick(std::uint64_t now_ns);
  std::uint64_t next_deadline_ns() const noexcept { return next_ns_; }

  // Lanes that have left a question open for more than half of the timeout.
  std::vector<std::size_t> silent(std::uint64_t now_ns) const;

 private:
  std::uint64_t timeout_ns_;
  std::vector<SignOfLife*> signs_;
  std::function<void(std::size_t)> wake_;
  bool asking_ = false;
  std::uint64_t asked_ns_ = 0;
  std::uint64_t next_ns_ = 0;
};

}  // namespace tern::daemon
