#pragma once

// Puts the parts together in order, runs the conductor on the calling thread, and takes them apart
// in reverse order.

#include <memory>

#include "base/result.h"
#include "daemon/config/config.h"

namespace tern::daemon {

class Daemon {
 public:
  static Result<std::unique_ptr<Daemon>> create(const Config& config);
  ~Daemon();

  // Returns when request_stop() has been called and pending ops have finished or failed.
  void run();
  // Async-signal-safe.
  void request_stop() noexcept;

 private:
  struct Parts;
  explicit Daemon(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace tern::daemon
