#pragma once

#include <ctime>
#include <optional>

namespace tern::daemon {

// While it lives, its thread does not sleep long in a system call that a signal ends: it gets one
// every hundred microseconds. To close the last descriptor of a TCP socket that lingers, or of a
// terminal that drains, sleeps for as long as who opened it likes, and can be ended so; a file
// system can also sleep through all signals. System calls of that thread may answer EINTR
// meanwhile, but close() has closed all the same.
//
// The signal is SIGURG, whose handler does nothing, in this process from the first of these on.
class Nudges {
 public:
  // Where the kernel gives no timer there are none.
  Nudges();
  ~Nudges();
  Nudges(const Nudges&) = delete;
  Nudges& operator=(const Nudges&) = delete;

 private:
  std::optional<timer_t> timer_;
};

}  // namespace tern::daemon
