#pragma once

#include <prometheus/metric_family.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

namespace tern::daemon {

// Answers GET /metrics over HTTP, in plaintext and to everyone who can connect, on threads of its
// own. What it answers was published before: a scrape never waits for the conductor.
class MetricsServer {
 public:
  // Port 0: the kernel chooses. The error says which address cannot be had.
  static Result<std::unique_ptr<MetricsServer>> create(const std::string& host, std::uint16_t port);
  ~MetricsServer();

  // Thread: one at a time.
  void publish(std::vector<prometheus::MetricFamily> families);

  std::uint16_t port() const noexcept { return port_; }

 private:
  class Snapshot;
  class Http;
  MetricsServer(std::shared_ptr<Snapshot> snapshot, std::unique_ptr<Http> http);

  std::shared_ptr<Snapshot> snapshot_;
  std::unique_ptr<Http> http_;
  std::uint16_t port_ = 0;
};

}  // namespace tern::daemon
