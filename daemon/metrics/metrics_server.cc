#include "daemon/metrics/metrics_server.h"

#include <prometheus/collectable.h>
#include <prometheus/exposer.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <utility>

namespace tern::daemon {

namespace {

constexpr std::chrono::milliseconds kPatience{500};
constexpr std::chrono::seconds kFresh{1};

}  // namespace

class MetricsServer::Snapshot final : public prometheus::Collectable {
 public:
  explicit Snapshot(std::function<void()> wake) : wake_(std::move(wake)) {}

  std::vector<prometheus::MetricFamily> Collect() const override {
    std::unique_lock lock(mutex_);
    const std::uint64_t seen = published_;
    if (seen == 0 || std::chrono::steady_clock::now() - published_at_ >= kFresh) {
      wanted_.store(true, std::memory_order_release);
      wake_();
      fresh_.wait_for(lock, kPatience, [&] { return published_ != seen; });
    }
    return families_;
  }
  void set(std::vector<prometheus::MetricFamily> families) {
    const std::scoped_lock lock(mutex_);
    families_.swap(families);
    ++published_;
    published_at_ = std::chrono::steady_clock::now();
    wanted_.store(false, std::memory_order_release);
    fresh_.notify_all();
  }
  bool wanted() const noexcept { return wanted_.load(std::memory_order_acquire); }

 private:
  std::function<void()> wake_;
  mutable std::atomic<bool> wanted_{false};
  mutable std::mutex mutex_;
  mutable std::condition_variable fresh_;
  std::uint64_t published_ = 0;
  std::chrono::steady_clock::time_point published_at_;
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
                                                             std::uint16_t port,
                                                             std::function<void()> wake) {
  const bool is_ipv6 = host.find(':') != std::string::npos;
  const std::string address = (is_ipv6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
  try {
    auto http = std::make_unique<Http>(address);
    auto snapshot = std::make_shared<Snapshot>(std::move(wake));
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

bool MetricsServer::wanted() const noexcept { return snapshot_->wanted(); }

void MetricsServer::publish(std::vector<prometheus::MetricFamily> families) {
  snapshot_->set(std::move(families));
}

}  // namespace tern::daemon
