#pragma once

// Puts the parts together in order, runs the conductor on the calling thread, and takes them apart
// in reverse order.

#include <functional>
#include <memory>

#include "base/result.h"
#include "daemon/config/config.h"

namespace tern::daemon {

class Daemon {
 public:
  // `read_again` makes the configuration anew, from where it came: called after request_reload().
  static Result<std::unique_ptr<Daemon>> create(const Config& config,
                                                std::function<Result<Config>()> read_again);
  ~Daemon();

  // Returns when request_stop() has been called and pending ops have finished or failed.
  void run();
  // Both are async-signal-safe.
  void request_stop() noexcept;
  // Takes what can change without a restart from a configuration read again. If that has mistakes,
  // they are logged and nothing changes.
  void request_reload() noexcept;

 private:
  struct Composition;
  explicit Daemon(std::unique_ptr<Composition> composition);
  std::unique_ptr<Composition> composition_;
};

}  // namespace tern::daemon
