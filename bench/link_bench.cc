#include "bench/link_bench.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "bench/link_transport.h"
#include "net/link.h"
#include "net/tcp/tcp_transport.h"

namespace tern::bench {
namespace {

constexpr wire::NodeId kListens{2, 2};
constexpr wire::NodeId kConnects{1, 1};
// Frames under way, as a lane has slabs.
constexpr std::uint64_t kWindow = 64;
constexpr std::uint64_t kLongestSleepNs = 100'000'000;
constexpr std::uint64_t kEndNs = 60'000'000'000;

struct LinkOptions {
  std::string transport = "tcp";
  std::string listen;
  std::string connect;
  std::uint32_t frame_bytes = 256 << 10;
  std::uint64_t frames = 2000;
  std::uint32_t small_bytes = 64;
  std::uint64_t small_frames = 2000;
  bool spins = std::thread::hardware_concurrency() > 2;
  RdmaOptions rdma;
};

net::Endpoint endpoint_of(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos) throw std::runtime_error("write host:port, not " + text);
  return {text.substr(0, colon), static_cast<std::uint16_t>(std::stoul(text.substr(colon + 1)))};
}

// Programs that are traced, or run under emulation, are slow to connect.
net::LinkSettings patient() {
  net::LinkSettings settings;
  settings.resume_timeout_ns = settings.peer_timeout_ns = 30'000'000'000;
  return settings;
}

wire::FrameHeader header_of(wire::FrameKind kind) {
  wire::FrameHeader header;
  header.kind = static_cast<std::uint8_t>(kind);
  return header;
}

// One end. Contributions are measured for throughput; a grant is answered by a grant, for latency.
class End final : public net::LinkSink, public net::AcceptorSink {
 public:
  explicit End(const LinkOptions& options)
      : options_(options), out_(options.frame_bytes, std::byte{1}), in_(options.frame_bytes) {
    if (options.transport == "rdma") {
      auto rdma = make_rdma(options.rdma, tcp_, loop_, clock_);
      if (!rdma) throw std::runtime_error(rdma.error().text);
      rdma_ = std::move(*rdma);
    }
    const Status remembered = transport().remember_memory({out_, net::MemoryKind::host});
    if (!remembered) throw std::runtime_error(remembered.error().text);
  }
  ~End() override {
    link_.reset();
    transport().forget_memory({out_, net::MemoryKind::host});
  }
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  void listen();
  void measure();

 private:
  net::Transport& transport() { return rdma_ ? *rdma_ : tcp_; }
  // As a lane does, which with few cores sleeps until its links have something to do: whoever spins
  // takes the core from those who have.
  void work() {
    int done = transport().poll();
    if (link_) done += link_->tick();
    if (done > 0 || options_.spins || !transport().prepare_sleep()) return;
    const std::uint64_t now = clock_.now_ns();
    const std::uint64_t deadline =
        std::min(link_ ? link_->next_deadline_ns() : ~std::uint64_t{0}, now + kLongestSleepNs);
    if (deadline > now) loop_.wait(deadline - now);
  }
  void step() {
    work();
    if (lost_) throw std::runtime_error("the link was lost: " + lost_text_);
  }
  template <typename Done>
  void step_until(const Done& done) {
    const std::uint64_t begin = clock_.now_ns();
    while (!done()) {
      step();
      if (clock_.now_ns() > begin + 10 * kEndNs) throw std::runtime_error("it does not end");
    }
  }
  double throughput();
  std::vector<double> latencies();

  net::PayloadPlace place_payload(net::Link&, const wire::FrameHeader& header) override {
    return {{}, std::span(in_).first(std::min<std::size_t>(header.payload_bytes, in_.size()))};
  }
  bool on_frame(net::Link& link, const wire::FrameHeader& header, const net::PayloadPlace& place,
                bool payload_valid) override {
    ++received_;
    if (!payload_valid) throw std::runtime_error("a payload arrived damaged");
    if (header.kind == static_cast<std::uint8_t>(wire::FrameKind::grant) &&
        !options_.listen.empty()) {
      link.send(header_of(wire::FrameKind::grant), {}, place.body, 0);
    }
    return true;
  }
  void on_abandoned(net::Link&, const wire::FrameHeader&, const net::PayloadPlace&) override {}
  void on_acked(net::Link&, std::uint64_t) override { ++acked_; }
  void on_lost(net::Link&, Errc, const char* text) override {
    lost_ = true;
    lost_text_ = text;
  }
  void on_incoming(std::unique_ptr<net::Incoming> incoming, const wire::FrameHeader&,
                   const wire::HelloBody& hello) override {
    if (!link_) {
      link_ = std::make_unique<net::Link>(
          transport(), clock_,
          net::Link::Setup{patient(), {kListens, hello.node, hello.lane, {}, false}}, *this);
    }
    link_->offer(incoming, hello);
  }
  void on_refused(const std::string& from, Errc, const char* text) override {
    fmt::print(stderr, "{}: {}\n", from, text);
  }

  LinkOptions options_;
  SteadyClock clock_;
  net::EventLoop loop_;
  net::TcpTransport tcp_{loop_, {}};
  std::unique_ptr<net::Transport> rdma_;
  std::unique_ptr<net::Link> link_;
  std::vector<std::byte> out_, in_;
  std::uint64_t received_ = 0;
  std::uint64_t acked_ = 0;
  bool lost_ = false;
  std::string lost_text_;
};

void End::listen() {
  auto acceptor = net::TcpAcceptor::create(loop_, clock_, {endpoint_of(options_.listen)}, *this);
  if (!acceptor) throw std::runtime_error(acceptor.error().text);
  while (!link_) {
    (*acceptor)->poll();
    transport().poll();
  }
  while (!lost_) work();  // until the other end's goodbye
  fmt::print(R"({{"received_frames": {}, {}}})"
             "\n",
             received_, R"("end": ")" + lost_text_ + "\"");
}

double End::throughput() {
  const std::uint64_t begin = clock_.now_ns();
  const std::uint64_t acked_before = acked_;
  for (std::uint64_t sent = 0; sent < options_.frames; ++sent) {
    step_until([&] { return sent - (acked_ - acked_before) < kWindow; });
    link_->send(header_of(wire::FrameKind::contribution), {}, out_, 1);
  }
  step_until([&] { return acked_ - acked_before == options_.frames; });
  const double seconds = static_cast<double>(clock_.now_ns() - begin) / 1e9;
  return static_cast<double>(options_.frames) * options_.frame_bytes / seconds;
}

// There and back again, halved.
std::vector<double> End::latencies() {
  std::vector<double> us;
  const auto payload = std::span<const std::byte>(out_).first(
      std::min<std::size_t>(options_.small_bytes, out_.size()));
  for (std::uint64_t i = 0; i < options_.small_frames; ++i) {
    const std::uint64_t before = received_;
    const std::uint64_t begin = clock_.now_ns();
    link_->send(header_of(wire::FrameKind::grant), {}, payload, 0);
    step_until([&] { return received_ != before; });
    us.push_back(static_cast<double>(clock_.now_ns() - begin) / 2e3);
  }
  std::sort(us.begin(), us.end());
  return us;
}

void End::measure() {
  link_ = std::make_unique<net::Link>(
      transport(), clock_,
      net::Link::Setup{patient(), {kConnects, kListens, 0, endpoint_of(options_.connect), true}},
      *this);
  step_until([&] { return link_->state() == net::LinkState::open; });
  const std::vector<double> us = latencies();
  const double bytes_per_s = throughput();
  const net::Carriage carriage = link_->carriage();
  const std::string counters = rdma_counters(transport());
  fmt::print(
      R"({{"transport": "{}", "note": "{}", "frame_bytes": {}, "frames": {}, "mb_per_s": {:.2f}, )"
      R"("small_bytes": {}, "latency_us": {:.2f}, "latency_us_99": {:.2f}{}{}}})"
      "\n",
      carriage.name, carriage.note, options_.frame_bytes, options_.frames, bytes_per_s / 1e6,
      options_.small_bytes, us[us.size() / 2], us[us.size() * 99 / 100],
      counters.empty() ? "" : ", ", counters);
  link_->say_goodbye();
}

void run(const LinkOptions& options) {
  if (options.listen.empty() == options.connect.empty()) {
    throw std::runtime_error("give one of --listen and --connect");
  }
  End end(options);
  if (options.listen.empty()) {
    end.measure();
  } else {
    end.listen();
  }
}

}  // namespace

void add_link_command(CLI::App& app) {
  auto options = std::make_shared<LinkOptions>();
  CLI::App* command = app.add_subcommand("link", "Frames over one link, without daemons");
  command->add_option("--transport", options->transport)->check(CLI::IsMember({"tcp", "rdma"}));
  command->add_option("--listen", options->listen, "host:port; this end receives");
  command->add_option("--connect", options->connect, "host:port; this end sends and measures");
  command->add_option("--frame-bytes", options->frame_bytes)->check(CLI::Range(1, 16 << 20));
  command->add_option("--frames", options->frames)->check(CLI::Range(1, 1 << 30));
  command->add_option("--small-bytes", options->small_bytes)->check(CLI::Range(0, 1 << 20));
  command->add_option("--small-frames", options->small_frames)->check(CLI::Range(1, 1 << 30));
  command->add_option("--device", options->rdma.device, "RDMA device; the first usable one");
  command->add_option("--gid-index", options->rdma.gid_index);
  command->add_option("--slot-bytes", options->rdma.slot_bytes, "Of RDMA: what frames are cut into")
      ->check(CLI::Range(4096, 1 << 20));
  command->add_flag("--spin,!--no-spin", options->spins,
                    "Never sleep, or whenever idle; the default depends on the number of cores");
  command->add_flag("!--no-payload-crc", options->rdma.payload_crc,
                    "Over RDMA the queue pairs alone protect payloads; give it at both ends");
  command->callback([options] {
    try {
      run(*options);
    } catch (const std::exception& error) {
      fmt::print(stderr, "tern-bench link: {}\n", error.what());
      throw CLI::RuntimeError(1);
    }
  });
}

}  // namespace tern::bench
