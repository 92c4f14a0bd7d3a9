#include "daemon/metrics/metrics_server.h"

#include <prometheus/text_serializer.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>

#include "daemon/metrics/http_server.h"

namespace tern::daemon {

namespace {

constexpr std::chrono::milliseconds kPatience{500};
constexpr std::chrono::seconds kFresh{1};

}  // namespace

class MetricsServer::Snapshot {
 public:
  explicit Snapshot(std::function<void()> wake) : wake_(std::move(wake)) {}

  // What it writes takes long, and is not locked meanwhile: the conductor may publish.
  std::string text() const { return prometheus::TextSerializer().Serialize(*families()); }
  void set(std::vector<prometheus::MetricFamily> families) {
    auto fresh = std::make_shared<const Families>(std::move(families));
    const std::scoped_lock lock(mutex_);
    families_.swap(fresh);
    ++published_;
    published_at_ = std::chrono::steady_clock::now();
    wanted_.store(false, std::memory_order_release);
    fresh_.notify_all();
  }
  bool wanted() const noexcept { return wanted_.load(std::memory_order_acquire); }

 private:
  using Families = std::vector<prometheus::MetricFamily>;

  std::shared_ptr<const Families> families() const {
    std::unique_lock lock(mutex_);
    const std::uint64_t seen = published_;
    if (seen == 0 || std::chrono::steady_clock::now() - published_at_ >= kFresh) {
      wanted_.store(true, std::memory_order_release);
      wake_();
      fresh_.wait_for(lock, kPatience, [&] { return published_ != seen; });
    }
    return families_;
  }

  std::function<void()> wake_;
  mutable std::atomic<bool> wanted_{false};
  mutable std::mutex mutex_;
  mutable std::condition_variable fresh_;
  std::uint64_t published_ = 0;
  std::chrono::steady_clock::time_point published_at_;
  std::shared_ptr<const Families> families_ = std::make_shared<const Families>();
};

Result<std::unique_ptr<MetricsServer>> MetricsServer::create(const std::string& host,
                                                             std::uint16_t port,
                                                             std::function<void()> wake) {
  auto snapshot = std::make_unique<Snapshot>(std::move(wake));
  HttpServer::Settings settings;
  settings.host = host;
  settings.port = port;
  auto http = HttpServer::create(settings, [from = snapshot.get()] { return from->text(); });
  if (!http) {
    const bool is_ipv6 = host.find(':') != std::string::npos;
    return fail(Errc::io_error, "metrics_listen: cannot listen on " +
                                    (is_ipv6 ? "[" + host + "]" : host) + ":" +
                                    std::to_string(port) + ": " + http.error().text +
                                    "; is it an address of this machine, and the port free?");
  }
  return std::unique_ptr<MetricsServer>(new MetricsServer(std::move(snapshot), std::move(*http)));
}

MetricsServer::MetricsServer(std::unique_ptr<Snapshot> snapshot, std::unique_ptr<HttpServer> http)
    : snapshot_(std::move(snapshot)), http_(std::move(http)) {}
MetricsServer::~MetricsServer() = default;

std::uint16_t MetricsServer::port() const noexcept { return http_->port(); }

bool MetricsServer::wanted() const noexcept { return snapshot_->wanted(); }

void MetricsServer::publish(std::vector<prometheus::MetricFamily> families) {
  snapshot_->set(std::move(families));
}

}  // namespace tern::daemon
