#pragma once

#include <prometheus/metric_family.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

namespace tern::daemon {

class HttpServer;

// Answers GET /metrics over HTTP, in plaintext and to everyone who can connect, on a thread of its
// own. A scrape asks the conductor to publish, a second apart at least, and waits for it no longer
// than half a second: a conductor that hangs is shown as it was.
class MetricsServer {
 public:
  // Port 0: the kernel chooses. The error says which address cannot be had. `wake` makes the
  // conductor look at wanted(); it is called on other threads.
  static Result<std::unique_ptr<MetricsServer>> create(const std::string& host, std::uint16_t port,
                                                       std::function<void()> wake);
  ~MetricsServer();

  // Somebody waits for publish(). Costs nothing while nobody scrapes.
  bool wanted() const noexcept;

  // Thread: one at a time.
  void publish(std::vector<prometheus::MetricFamily> families);

  std::uint16_t port() const noexcept;

 private:
  class Snapshot;
  MetricsServer(std::unique_ptr<Snapshot> snapshot, std::unique_ptr<HttpServer> http);

  std::unique_ptr<Snapshot> snapshot_;
  std::unique_ptr<HttpServer> http_;  // last: it asks the snapshot
};

}  // namespace tern::daemon
