#include "daemon/metrics/metrics_server.h"

#include <prometheus/collectable.h>
#include <prometheus/exposer.h>

#include <exception>
#include <mutex>
#include <utility>

namespace tern::daemon {

class MetricsServer::Snapshot final : public prometheus::Collectable {
 public:
  std::vector<prometheus::MetricFamily> Collect() const override {
    const std::scoped_lock lock(mutex_);
    return families_;
  }
  void set(std::vector<prometheus::MetricFamily> families) {
    const std::scoped_lock lock(mutex_);
    families_.swap(families);
  }

 private:
  mutable std::mutex mutex_;
  std::vector<prometheus::MetricFamily> families_;
};

class MetricsServer::Http {
 public:
  // Throws what CivetWeb throws. Somebody who connects and says nothing holds one of the threads,
  // and not for long.
  explicit Http(const std::string& address)
      : exposer(std::vector<std::string>{"listening_ports", address, "num_threads", "4",
                                         "request_timeout_ms", "2000"}) {}
  prometheus::Exposer exposer;
};

Result<std::unique_ptr<MetricsServer>> MetricsServer::create(const std::string& host,
                                                             std::uint16_t port) {
  const bool is_ipv6 = host.find(':') != std::string::npos;
  const std::string address = (is_ipv6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
  try {
    auto http = std::make_unique<Http>(address);
    auto snapshot = std::make_shared<Snapshot>();
    http->exposer.RegisterCollectable(snapshot);
    return std::unique_ptr<MetricsServer>(new MetricsServer(std::move(snapshot), std::move(http)));
  } catch (const std::exception&) {
    return fail(Errc::io_error, "metrics_listen: cannot listen on " + address +
                                    "; is it an address of this machine, and the port free?");
  }
}

MetricsServer::MetricsServer(std::shared_ptr<Snapshot> snapshot, std::unique_ptr<Http> http)
    : snapshot_(std::move(snapshot)),
      http_(std::move(http)),
      port_(static_cast<std::uint16_t>(http_->exposer.GetListeningPorts().front())) {}
MetricsServer::~MetricsServer() = default;

void MetricsServer::publish(std::vector<prometheus::MetricFamily> families) {
  snapshot_->set(std::move(families));
}

}  // namespace tern::daemon
