#include "daemon/daemon.h"

#include <fmt/ranges.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <atomic>
#include <ctime>
#include <optional>
#include <thread>

#include "base/cores.h"
#include "codec/target/target.h"
#include "daemon/access/access.h"
#include "daemon/carrier/carrier.h"
#include "daemon/carrier/peer_security.h"
#include "daemon/client_server.h"
#include "daemon/codebooks.h"
#include "daemon/conductor/conductor.h"
#include "daemon/config/settings.h"
#include "daemon/control/control_server.h"
#include "daemon/lane/lane_thread.h"
#include "daemon/membership/hmac.h"
#include "daemon/metrics/families.h"
#include "daemon/metrics/metrics_server.h"
#include "daemon/operator/host_report.h"
#include "daemon/operator/verbs.h"
#include "daemon/operator/version.h"
#include "daemon/operator/window.h"
#include "daemon/service/supervisor.h"
#include "daemon/service/watchdog.h"
#include "net/event_loop_asio.h"
#include "net/tcp/tcp_transport.h"

namespace tern::daemon {
namespace {

// After SIGTERM, ops in flight have so long to finish by themselves.
constexpr std::uint64_t kGraceNs = 2'000'000'000;
// And what was said to clients and peers has so long to leave.
constexpr std::uint64_t kFlushNs = 200'000'000;
constexpr std::uint64_t kMaxSleepNs = 1'000'000'000;
// A lane is asked for signs of life also where no supervisor has set a limit.
constexpr std::uint64_t kLaneTimeoutNs = 20'000'000'000;

net::LinkSettings link_settings(const Config& config) {
  net::LinkSettings settings;
  settings.heartbeat_ns = config.heartbeat_ns;
  settings.peer_timeout_ns = config.peer_timeout_ns;
  settings.resume_timeout_ns = config.resume_timeout_ns;
  return settings;
}

Status check_recipe(const Config& config) {
  if (auto recipe = codec::parse_recipe(config.default_gradient_recipe); !recipe) {
    return fail(Errc::bad_recipe, "default_gradient_recipe: " + recipe.error().text);
  }
  return {};
}

// As the supervisor handed it over, or made here.
Result<shm::PacketListener> client_listener(const Config& config) {
  auto handed_over = take_client_socket(config.socket);
  if (!handed_over) return tl::unexpected(handed_over.error());
  if (*handed_over) return shm::PacketListener::adopt(std::move(*handed_over));
  return shm::PacketListener::bind(config.socket, static_cast<mode_t>(config.socket_mode));
}

wire::NodeId random_node() {
  wire::NodeId node;
  random_bytes(std::as_writable_bytes(std::span(&node, 1)));
  return node;
}

}  // namespace

// The acceptor must listen before the conductor exists, because its port is what the conductor
// advertises; nothing is accepted before the first poll.
struct LateSink final : net::AcceptorSink {
  net::AcceptorSink* target = nullptr;
  void on_incoming(std::unique_ptr<net::Incoming> connection, const wire::FrameHeader& header,
                   const wire::HelloBody& hello) override {
    target->on_incoming(std::move(connection), header, hello);
  }
  void on_refused(const std::string& from, Errc reason, const char* text) override {
    target->on_refused(from, reason, text);
  }
};

struct Daemon::Parts {
  struct LaneParts {
    net::EventLoop loop;
    std::unique_ptr<net::Transport> tcp;
    std::unique_ptr<net::Transport> rdma;  // null: TCP alone
    std::unique_ptr<Lane> lane;
    std::unique_ptr<LaneThread> thread;
  };

  Config config;
  // Asked once: conductor and lanes decide alike whether to spin.
  const std::uint32_t cores = usable_cores();
  std::function<Result<Config>()> read_again;
  SteadyClock clock;
  std::uint64_t started_ns = 0;
  std::unique_ptr<Window> window;  // first: the others count in its file
  wire::NodeId self = random_node();
  net::EventLoop loop;
  std::optional<PeerSecurity> security;
  std::unique_ptr<net::Transport> transport;
  ActiveJobs active_jobs;
  std::vector<std::unique_ptr<LaneParts>> lanes;
  std::unique_ptr<Tuning> tuning;
  std::unique_ptr<Shadow> shadow;
  std::unique_ptr<ClientServer> clients;
  std::unique_ptr<Conductor> conductor;
  LateSink incoming;
  std::unique_ptr<net::Acceptor> acceptor;
  Access access;
  Verbs verbs;
  std::unique_ptr<ControlServer> control;
  std::unique_ptr<MetricsServer> metrics;
  net::Endpoint listening;
  std::string carriers;
  std::atomic<bool> stop{false};
  std::atomic<bool> reload{false};
  Supervisor supervisor;
  std::unique_ptr<Watchdog> watchdog;
  std::vector<std::size_t> silent_lanes;
  std::vector<std::string> waiting_settings;  // changed in the file, until a restart
  std::uint64_t status_due_ns = 0;

  Status open(const Config& given);
  Status open_tuning();
  ConductorSettings conductor_settings() const;
  void apply_changes();
  void watch_lanes(std::uint64_t now_ns);
  void publish_metrics();
  std::string status_text() const;
  nlohmann::json report_status(const Scope& scope) const;
  int do_work();
  void finish();
};

Status Daemon::Parts::open_tuning() {
  TuningSettings settings;
  settings.candidates = split_candidates(config.candidates);
  settings.policy = config.policy;
  settings.choice_directory = config.choice_directory;
  if (const std::string directory = state_directory(config); !directory.empty()) {
    settings.memory_file = directory + "/tuner.json";
  }
  auto created = Tuning::create(settings, clock);
  if (!created) return tl::unexpected(created.error());
  tuning = std::move(*created);
  shadow = std::make_unique<Shadow>(tuning->recipes(), config.lanes, [this] { loop.wake(); });
  tuning->set_shadow(shadow.get());
  return {};
}

Status Daemon::Parts::open(const Config& given) {
  config = given;
  started_ns = clock.now_ns();
  if (config.kernel_target != "auto" && !codec::target::force(config.kernel_target)) {
    return fail(Errc::invalid_argument,
                "kernel_target: this machine cannot run " + config.kernel_target);
  }
  if (auto recipe = check_recipe(config); !recipe) return recipe;
  access = Access::create(config);
  if (auto books = load_codebooks(config.codebook_dir); !books) {
    return tl::unexpected(books.error());
  }
  if (auto tuned = open_tuning(); !tuned) return tuned;
  auto secured = PeerSecurity::create(config);
  if (!secured) return tl::unexpected(secured.error());
  security = std::move(*secured);
  auto probed = probe_carriers(config);
  if (!probed) return tl::unexpected(probed.error());
  carriers = std::move(*probed);
  auto listener = client_listener(config);
  if (!listener) return tl::unexpected(listener.error());
  clients = std::make_unique<ClientServer>(loop, std::move(*listener));
  net::TcpSettings tcp;
  tcp.send_buffer_bytes = static_cast<int>(config.socket_send_buffer_bytes);
  tcp.receive_buffer_bytes = static_cast<int>(config.socket_receive_buffer_bytes);
  tcp.tls = security->source();
  tcp.loopback_only = config.peer_security == "local";
  transport = std::make_unique<net::TcpTransport>(loop, tcp);
  net::AcceptorSettings accepting;
  accepting.hello_timeout_ns = config.handshake_timeout_ns;
  auto accept = net::TcpAcceptor::create(
      loop, clock, {{config.listen.host, config.listen.port}, accepting, tcp}, incoming);
  if (!accept) return tl::unexpected(accept.error());
  listening = (*accept)->endpoint();

  LaneSettings lane_settings;
  lane_settings.chunk_bytes = config.chunk_bytes;
  lane_settings.receive_slabs = config.receive_slabs;
  lane_settings.send_slabs = config.send_slabs;
  lane_settings.result_slabs = config.result_slabs;
  lane_settings.link = link_settings(config);
  LaneThread::Idle idle;
  idle.spin_ns = config.spin_ns;
  idle.pin = config.pin_lanes;
  idle.cores = cores;
  idle.lanes = config.lanes;
  std::vector<Lane*> lane_pointers;
  std::vector<SignOfLife*> signs;
  for (std::uint32_t i = 0; i < config.lanes; ++i) {
    auto parts = std::make_unique<LaneParts>();
    parts->tcp = std::make_unique<net::TcpTransport>(parts->loop, tcp);
    parts->rdma = make_rdma_transport(config, *parts->tcp, parts->loop, clock, i);
    lane_settings.lane = i;
    const LaneClients::Surroundings surroundings{clock, parts->rdma ? *parts->rdma : *parts->tcp,
                                                 &parts->loop};
    parts->lane =
        std::make_unique<Lane>(lane_settings, surroundings, self, [this] { loop.wake(); });
    parts->lane->set_shadow(shadow.get());
    parts->lane->share(active_jobs);
    parts->thread = std::make_unique<LaneThread>(parts->loop, *parts->lane, clock, idle);
    lane_pointers.push_back(parts->lane.get());
    signs.push_back(&parts->thread->sign_of_life());
    lanes.push_back(std::move(parts));
  }

  tuning->set_lanes(lane_pointers);
  conductor = std::make_unique<Conductor>(
      conductor_settings(), clock, *transport, self, std::move(lane_pointers), *clients,
      [this](std::uint32_t lane) { lanes[lane]->thread->wake(); });
  conductor->set_tuning(tuning.get());
  const std::uint64_t timeout_ns = Supervisor::watchdog_ns();
  watchdog =
      std::make_unique<Watchdog>(timeout_ns > 0 ? timeout_ns : kLaneTimeoutNs, std::move(signs),
                                 [this](std::size_t lane) { lanes[lane]->thread->wake(); });
  incoming.target = &conductor->acceptor_sink();
  acceptor = std::move(*accept);
  clients->start(*conductor);
  return {};
}

ConductorSettings Daemon::Parts::conductor_settings() const {
  ConductorSettings settings;
  settings.version = kVersion;
  const Endpoint advertise = advertised_endpoint(config, listening.port);
  settings.advertise = {advertise.host, advertise.port};
  settings.chunk_bytes = config.chunk_bytes;
  settings.eager_bytes = std::min(config.eager_bytes, config.chunk_bytes);
  settings.lossy_min_bytes = config.lossy_min_bytes;
  settings.max_ops_in_flight = config.max_ops_in_flight;
  settings.handshake_timeout_ns = config.handshake_timeout_ns;
  settings.op_timeout_ns = config.op_timeout_ns;
  settings.join_timeout_max_ns = config.join_timeout_max_ns;
  settings.spin_ns = config.spin_ns;
  settings.state_ttl_ns = config.state_ttl_ns;
  settings.cores = cores;
  settings.active_chunks = 2 * config.result_slabs;
  settings.verify = config.verify;
  settings.default_gradient_recipe = config.default_gradient_recipe;
  settings.max_clients = config.max_clients;
  settings.max_clients_per_user = config.max_clients_per_user;
  settings.max_groups = config.max_groups;
  settings.max_groups_per_user = config.max_groups_per_user;
  settings.max_tensors = config.max_tensors;
  settings.max_tensors_per_user = config.max_tensors_per_user;
  settings.max_ops_in_flight_per_user = config.max_ops_in_flight_per_user;
  settings.max_links_per_user = config.max_links_per_user;
  settings.max_arena_bytes = config.max_arena_bytes;
  settings.max_state_bytes = config.max_state_bytes;
  settings.allowed_uids = config.allowed_uids;
  settings.allowed_gids = config.allowed_gids;
  settings.flight_directory = flight_directory(config);
  settings.link = link_settings(config);
  return settings;
}

void Daemon::Parts::apply_changes() {
  auto fresh = read_again();
  if (auto recipe = fresh ? check_recipe(*fresh) : Status{}; !recipe) {
    fresh = tl::unexpected(recipe.error());
  }
  if (!fresh) {
    spdlog::error("the configuration stays as it was: {}", fresh.error().text);
    return;
  }
  waiting_settings.clear();
  for (const SettingChange& change : config_changes(config, *fresh)) {
    if (change.reloadable) {
      spdlog::info("{}: {}, was {}", change.name, change.after, change.before);
    } else {
      spdlog::warn("{}: stays {} until a restart", change.name, change.before);
      waiting_settings.emplace_back(change.name);
    }
  }
  config = with_reloadable(config, *fresh);
  if (auto renewed = security->reload(config); !renewed) {
    spdlog::error("certificates and keys stay as they were: {}", renewed.error().text);
  }
  spdlog::set_level(spdlog::level::from_str(config.log_level));
  access = Access::create(config);
  window->admit(access);
  conductor->change_settings(conductor_settings());
  if (config.policy != tuning->policy().text()) {
    if (auto changed = tuning->set_policy(config.policy); !changed) {
      spdlog::error("the policy stays as it was: {}", changed.error().text);
    }
  }
  spdlog::info("the configuration was read again");
}

void Daemon::Parts::watch_lanes(std::uint64_t now_ns) {
  if (watchdog->tick(now_ns)) supervisor.alive();
  if (auto silent = watchdog->silent(now_ns); silent != silent_lanes) {
    silent_lanes = std::move(silent);
    status_due_ns = now_ns;
    if (silent_lanes.empty()) spdlog::info("all lanes answer again");
    for (const std::size_t lane : silent_lanes) spdlog::error("lane {} does not answer", lane);
  }
  if (now_ns < status_due_ns) return;
  status_due_ns = now_ns + kMaxSleepNs;
  security->watch(std::time(nullptr));
  supervisor.status(status_text());
  window->tick();
}

// Between two rounds of do_work, when somebody has asked.
void Daemon::Parts::publish_metrics() {
  if (metrics && metrics->wanted()) {
    metrics->publish(metric_families(report_status(Scope::of_all()), conductor->report_peers(),
                                     conductor->report_counters()));
  }
}

std::string Daemon::Parts::status_text() const {
  std::string text = fmt::format(
      "{} clients, {} groups, {} peers; listens on {} ({})", conductor->client_count(),
      conductor->group_count(), conductor->peer_count(), net::to_text(listening), security->text());
  if (!silent_lanes.empty())
    text += fmt::format("; silent lanes: {}", fmt::join(silent_lanes, ", "));
  if (!waiting_settings.empty()) {
    text += fmt::format("; until a restart without effect: {}", fmt::join(waiting_settings, ", "));
  }
  return text;
}

int Daemon::Parts::do_work() {
  int work = loop.poll();
  work += acceptor->poll();
  work += clients->poll();
  work += conductor->do_work();
  return work;
}

void Daemon::Parts::finish() {
  spdlog::info("stopping: waiting for operations in flight");
  supervisor.stopping();
  clients->stop_accepting();
  conductor->begin_stop();
  const auto work_until = [this](std::uint64_t deadline, auto done) {
    while (clock.now_ns() < deadline && !done()) {
      if (do_work() == 0) loop.wait(5'000'000);
    }
  };
  work_until(clock.now_ns() + kGraceNs, [this] { return conductor->idle(); });
  conductor->end_all(Errc::shutting_down, "the daemon is stopping");
  // The news of the end must reach the coordinators before the links say goodbye.
  work_until(clock.now_ns() + kFlushNs / 2, [] { return false; });
  conductor->say_goodbye();
  work_until(clock.now_ns() + kFlushNs / 2, [] { return false; });
  tuning->save();
}

nlohmann::json Daemon::Parts::report_status(const Scope& scope) const {
  nlohmann::json status = {
      {"version", kVersion},
      {"node_id", node_text(self)},
      {"pid", ::getpid()},
      {"uptime_s", static_cast<double>(clock.now_ns() - started_ns) / 1e9},
      {"listen", net::to_text(listening)},
      {"advertise", to_text(net::Endpoint{advertised_endpoint(config, listening.port).host,
                                          advertised_endpoint(config, listening.port).port})},
      {"lanes", config.lanes},
      {"clients", conductor->client_count(scope)},
      {"groups", conductor->group_count(scope)},
      {"peers", conductor->peer_count(scope)},
      {"transport", config.transport},
      {"carriers", carriers},
      {"kernel_target", codec::target::name()},
      {"silent_lanes", silent_lanes},
      {"waiting_settings", waiting_settings},
      {"metrics", metrics ? net::to_text({config.metrics_listen.host, metrics->port()}) : ""}};
  // Grows with the arenas of all.
  if (scope.has_all()) status["rss_bytes"] = rss_bytes();
  security->report(status);
  return status;
}

Daemon::Daemon(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

Daemon::~Daemon() {
  if (!parts_) return;
  for (auto& lane : parts_->lanes) lane->thread->stop();
  parts_->control.reset();
  parts_->metrics.reset();
  parts_->acceptor.reset();
  parts_->conductor.reset();
  parts_->lanes.clear();
  parts_->shadow.reset();
}

Result<std::unique_ptr<Daemon>> Daemon::create(const Config& config,
                                               std::function<Result<Config>()> read_again) {
  auto parts = std::make_unique<Parts>();
  parts->read_again = std::move(read_again);
  if (auto opened = parts->open(config); !opened) return tl::unexpected(opened.error());
  ControlOptions options;
  options.path = config.control_socket;
  options.mode = config.control_socket_mode;
  auto control = ControlServer::create(parts->loop.impl().io, options, parts->verbs);
  if (!control) return tl::unexpected(control.error());
  parts->control = std::move(*control);
  std::vector<Lane*> lanes;
  for (const auto& lane : parts->lanes) lanes.push_back(lane->lane.get());
  auto window = Window::create(parts->config, parts->access, parts->clock, std::move(lanes),
                               *parts->conductor, *parts->tuning);
  if (!window) return tl::unexpected(window.error());
  parts->window = std::move(*window);
  parts->verbs.set_sources(
      {&parts->access, parts->conductor.get(), parts->tuning.get(), parts->window.get(),
       [all = parts.get()](const Scope& scope) { return all->report_status(scope); },
       [all = parts.get()] { return flight_directory(all->config); }});
  if (const Endpoint& listen = config.metrics_listen; !listen.host.empty()) {
    auto metrics =
        MetricsServer::create(listen.host, listen.port, [loop = &parts->loop] { loop->wake(); });
    if (!metrics) return tl::unexpected(metrics.error());
    parts->metrics = std::move(*metrics);
  }
  return std::unique_ptr<Daemon>(new Daemon(std::move(parts)));
}

void Daemon::run() {
  Parts& parts = *parts_;
  for (auto& lane : parts.lanes) lane->thread->start();
  parts.shadow->start();
  spdlog::info("ternd {} listens on {} ({}) and {}, {} lanes, kernels {}", kVersion,
               net::to_text(parts.listening), parts.security->text(), parts.config.socket,
               parts.config.lanes, codec::target::name());
  parts.security->announce();
  spdlog::info("transport {}: {}", parts.config.transport, parts.carriers);
  parts.supervisor.ready(parts.status_text());
  while (!parts.stop.load(std::memory_order_acquire)) {
    if (parts.reload.exchange(false, std::memory_order_acq_rel)) {
      parts.supervisor.reloading();
      parts.apply_changes();
      parts.supervisor.ready(parts.status_text());
    }
    const int work = parts.do_work();
    const std::uint64_t now = parts.clock.now_ns();
    parts.watch_lanes(now);
    parts.publish_metrics();
    if (work > 0) continue;
    const std::uint64_t deadline =
        std::min(parts.conductor->next_deadline_ns(), parts.watchdog->next_deadline_ns());
    if (deadline > now) parts.loop.wait(std::min(deadline - now, kMaxSleepNs));
  }
  parts.finish();
}

void Daemon::request_reload() noexcept {
  parts_->reload.store(true, std::memory_order_release);
  parts_->loop.wake();
}

void Daemon::request_stop() noexcept {
  parts_->stop.store(true, std::memory_order_release);
  parts_->loop.wake();
}

}  // namespace tern::daemon
