#include "daemon/daemon.h"

#include <fmt/ranges.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <atomic>
#include <ctime>
#include <optional>

#include "base/check.h"
#include "base/cores.h"
#include "codec/target/target.h"
#include "daemon/access/access.h"
#include "daemon/carrier/carrier.h"
#include "daemon/carrier/peer_security.h"
#include "daemon/check_settings.h"
#include "daemon/client_server.h"
#include "daemon/codebooks.h"
#include "daemon/conductor/conductor.h"
#include "daemon/config/descriptor_budget.h"
#include "daemon/config/settings.h"
#include "daemon/control/control_server.h"
#include "daemon/lane/lane_thread.h"
#include "daemon/membership/hmac.h"
#include "daemon/metrics/families.h"
#include "daemon/metrics/link_series.h"
#include "daemon/metrics/metrics_server.h"
#include "daemon/operator/host_report.h"
#include "daemon/operator/operator_view.h"
#include "daemon/operator/verbs.h"
#include "daemon/operator/version.h"
#include "daemon/part_settings.h"
#include "daemon/service/supervisor.h"
#include "daemon/service/watchdog.h"
#include "net/event_loop_asio.h"
#include "net/tcp/tcp_transport.h"

namespace tern::daemon {
namespace {

// After SIGTERM, ops in flight have so long to finish by themselves.
constexpr std::uint64_t kGraceNs = 2'000'000'000;
// And so long what was said to clients and peers to leave, and what was written to reach the disk.
constexpr std::uint64_t kFlushNs = 200'000'000, kFilesNs = 3'000'000'000;
constexpr std::uint64_t kMaxSleepNs = 1'000'000'000;
// Of a poll of the loop: there are three in a turn, one for the acceptor and one for the links.
constexpr std::uint64_t kPollNs = 1'000'000;
// Of each link. Those of conductors have small messages: what waits of one keeps others waiting.
constexpr std::size_t kControlBytesPerPoll = 64 << 10, kLaneBytesPerPoll = 1 << 20;
// A lane is asked for signs of life also where no supervisor has set a limit.
constexpr std::uint64_t kLaneTimeoutNs = 20'000'000'000;

// As the supervisor handed it over, or made here.
Result<shm::PacketListener> client_listener(const Config& config) {
  auto handed_over = take_client_socket(config.socket);
  if (!handed_over) return tl::unexpected(handed_over.error());
  if (*handed_over) return shm::PacketListener::adopt(std::move(*handed_over));
  return shm::PacketListener::bind(config.socket, static_cast<mode_t>(config.socket_mode));
}

// Settings that allow more than the process can have: a warning where somebody has set them.
void tell_of_few_descriptors(const Config& config) {
  const std::string why = descriptor_trouble(config, descriptor_budget(config, descriptor_limit()));
  const auto level = asks_for_descriptors(config) ? spdlog::level::warn : spdlog::level::info;
  if (!why.empty()) spdlog::log(level, "{}", why);
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

// Everything that a daemon is made of, in the order in which it is made.
struct Daemon::Composition {
  struct LaneOfDaemon {
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
  std::unique_ptr<OperatorView> view;  // first: the others count in its file
  wire::NodeId self = random_node();
  SubUsers sub_users;
  Disposal disposal, writing;  // the latter of files; before those that leave something to them
  net::EventLoop loop;
  std::optional<PeerSecurity> security;
  std::unique_ptr<net::Transport> transport;
  ActiveJobs active_jobs;
  std::vector<std::unique_ptr<LaneOfDaemon>> lanes;
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
  LinkSeries link_series;  // that it shows
  net::Endpoint listening;
  std::string carriers;
  std::atomic<bool> stop{false};
  std::atomic<bool> reload{false};
  ProcessorWait processor_wait;
  Supervisor supervisor;
  std::unique_ptr<Watchdog> watchdog;
  std::vector<std::size_t> silent_lanes;
  std::vector<std::string> waiting_settings;  // changed in the file, until a restart
  std::uint64_t status_due_ns = 0;

  Status open(const Config& given);
  Status open_tuning();
  Status open_sockets();
  net::TcpSettings tcp_settings(std::size_t bytes_per_poll) const;
  void open_lanes();
  std::vector<Lane*> lane_pointers() const;
  void open_conductor();
  ConductorSettings conductor_settings() const {
    return tern::daemon::conductor_settings(config, {listening.port, cores, sub_users});
  }
  void apply_changes();
  void watch_lanes(std::uint64_t now_ns);
  void publish_metrics();
  std::string status_text() const;
  nlohmann::json report_status(const Scope& scope) const;
  int do_work();
  int round();
  void finish();
};

Status Daemon::Composition::open_tuning() {
  TuningSettings settings;
  settings.candidates = split_candidates(config.candidates);
  settings.policy = config.policy;
  settings.choice_directory = config.choice_directory;
  if (const std::string directory = state_directory(config); !directory.empty()) {
    settings.memory_file = directory + "/tuner.json";
  }
  auto created = Tuning::create(settings, clock, writing);
  if (!created) return tl::unexpected(created.error());
  tuning = std::move(*created);
  shadow = std::make_unique<Shadow>(tuning->recipes(), config.lanes, [this] { loop.wake(); });
  tuning->set_shadow(shadow.get());
  return {};
}

Status Daemon::Composition::open(const Config& given) {
  config = given;
  started_ns = clock.now_ns();
  if (auto checked = check_settings(config); !checked) return checked;
  TERN_CHECK(codec::target::force(config.kernel_target));
  access = Access::create(config);
  sub_users = SubUsers::read();
  if (auto books = load_codebooks(config.codebook_dir); !books) {
    return tl::unexpected(books.error());
  }
  if (auto tuned = open_tuning(); !tuned) return tuned;
  if (auto opened = open_sockets(); !opened) return opened;
  if (auto room = check_lane_room(config); !room) return room;
  open_lanes();
  open_conductor();
  return {};
}

// Where clients and other daemons connect. Nothing is accepted before the first poll.
Status Daemon::Composition::open_sockets() {
  auto secured = PeerSecurity::create(config);
  if (!secured) return tl::unexpected(secured.error());
  security = std::move(*secured);
  auto probed = probe_carriers(config);
  if (!probed) return tl::unexpected(probed.error());
  carriers = std::move(*probed);
  auto listener = client_listener(config);
  if (!listener) return tl::unexpected(listener.error());
  clients = std::make_unique<ClientServer>(ClientServer::Surroundings{loop, disposal, sub_users},
                                           std::move(*listener));
  const net::TcpSettings tcp = tcp_settings(kControlBytesPerPoll);
  transport = std::make_unique<net::TcpTransport>(loop, tcp);
  net::AcceptorSettings accepting;
  accepting.hello_timeout_ns = config.handshake_timeout_ns;
  auto accept = net::TcpAcceptor::create(
      loop, clock, {{config.listen.host, config.listen.port}, accepting, tcp}, incoming);
  if (!accept) return tl::unexpected(accept.error());
  listening = (*accept)->endpoint();
  acceptor = std::move(*accept);
  return {};
}

net::TcpSettings Daemon::Composition::tcp_settings(std::size_t bytes_per_poll) const {
  return {.send_buffer_bytes = static_cast<int>(config.socket_send_buffer_bytes),
          .receive_buffer_bytes = static_cast<int>(config.socket_receive_buffer_bytes),
          .bytes_per_poll = bytes_per_poll,
          .clock = &clock,
          .tls = security->source(),
          .loopback_only = config.peer_security == "local",
          .account_of = [this](std::uint32_t user) { return sub_users.owner_of(user); }};
}

void Daemon::Composition::open_lanes() {
  LaneSettings settings = lane_settings(config);
  LaneThread::Idle idle;
  idle.spin_ns = config.spin_ns;
  idle.pin = config.pin_lanes;
  idle.cores = cores;
  idle.lanes = config.lanes;
  for (std::uint32_t i = 0; i < config.lanes; ++i) {
    auto made = std::make_unique<LaneOfDaemon>();
    made->tcp = std::make_unique<net::TcpTransport>(made->loop, tcp_settings(kLaneBytesPerPoll));
    made->rdma = make_rdma_transport(config, {*made->tcp, made->loop, clock, i});
    settings.lane = i;
    const LaneClients::Surroundings surroundings{clock, made->rdma ? *made->rdma : *made->tcp,
                                                 &made->loop};
    made->lane = std::make_unique<Lane>(settings, surroundings, self, [this] { loop.wake(); });
    made->lane->set_shadow(shadow.get());
    made->lane->share(active_jobs);
    made->thread = std::make_unique<LaneThread>(made->loop, *made->lane, clock, idle);
    lanes.push_back(std::move(made));
  }
}

std::vector<Lane*> Daemon::Composition::lane_pointers() const {
  std::vector<Lane*> pointers;
  for (const auto& one : lanes) pointers.push_back(one->lane.get());
  return pointers;
}

void Daemon::Composition::open_conductor() {
  for (const auto& one : lanes) tuning->add_lane(one->lane->counters());
  const auto wake_lane = [this](std::size_t lane) { lanes[lane]->thread->wake(); };
  conductor = std::make_unique<Conductor>(
      conductor_settings(),
      Conductor::Surroundings{clock, *transport, self, lane_pointers(), *clients, disposal, writing,
                              wake_lane, tuning.get()});
  std::vector<SignOfLife*> signs;
  for (const auto& one : lanes) signs.push_back(&one->thread->sign_of_life());
  const std::uint64_t timeout_ns = Supervisor::watchdog_ns();
  watchdog = std::make_unique<Watchdog>(timeout_ns > 0 ? timeout_ns : kLaneTimeoutNs,
                                        std::move(signs), wake_lane);
  incoming.target = conductor.get();
  loop.bound_polls(clock, kPollNs);
  clients->start(*conductor);
}

void Daemon::Composition::apply_changes() {
  auto fresh = read_again();
  if (auto checked = fresh ? check_reload(config, *fresh) : Status{}; !checked) {
    fresh = tl::unexpected(checked.error());
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
  sub_users = SubUsers::read();
  view->admit(access);
  conductor->change_settings(conductor_settings());
  tell_of_few_descriptors(config);
  if (config.policy != tuning->policy().text()) {
    // A user may be gone since it was checked.
    if (auto changed = tuning->set_policy(config.policy); !changed) {
      spdlog::error("the policy stays as it was: {}", changed.error().text);
    }
  }
  spdlog::info("the configuration was read again");
}

void Daemon::Composition::watch_lanes(std::uint64_t now_ns) {
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
  view->tick();
}

// Between two rounds of do_work, when somebody has asked.
void Daemon::Composition::publish_metrics() {
  if (metrics && metrics->wanted()) {
    conductor->turns().step("metrics");
    metrics->publish(metric_families(report_status(Scope::of_all()),
                                     link_series.rows(conductor->reports().peers()),
                                     conductor->reports().counters()));
  }
}

std::string Daemon::Composition::status_text() const {
  std::string text =
      fmt::format("{} clients, {} groups, {} peers; listens on {} ({})",
                  conductor->reports().client_count(), conductor->reports().group_count(),
                  conductor->reports().peer_count(), net::to_text(listening), security->text());
  if (!silent_lanes.empty())
    text += fmt::format("; silent lanes: {}", fmt::join(silent_lanes, ", "));
  if (conductor->drain().is_on()) text += "; will end: " + conductor->drain().text();
  if (!waiting_settings.empty()) {
    text += fmt::format("; until a restart without effect: {}", fmt::join(waiting_settings, ", "));
  }
  return text;
}

int Daemon::Composition::do_work() {
  conductor->turns().begin();
  int work = loop.poll();
  conductor->turns().step("acceptor");
  work += acceptor->poll();
  work += clients->poll();
  work += conductor->do_work();
  return work;
}

// One turn of the conductor. It has begun already if a client or an operator has woken the thread.
int Daemon::Composition::round() {
  if (reload.exchange(false, std::memory_order_acq_rel)) {
    conductor->turns().step("reload");
    supervisor.reloading();
    apply_changes();
    supervisor.ready(status_text());
  }
  const int work = do_work();
  conductor->turns().step("watch lanes");
  watch_lanes(clock.now_ns());
  publish_metrics();
  conductor->turns().end();
  return work;
}

void Daemon::Composition::finish() {
  spdlog::info("stopping: waiting for operations in flight");
  supervisor.stopping();
  clients->stop_accepting();
  conductor->drain().stop();
  const auto work_for = [this](std::uint64_t ns, auto done) {
    for (const std::uint64_t end = clock.now_ns() + ns; clock.now_ns() < end && !done();) {
      if (do_work() == 0) loop.wait(5'000'000);
    }
  };
  work_for(kGraceNs, [this] { return conductor->idle(); });
  conductor->end_all(Errc::shutting_down, "the daemon is stopping");
  // The news of the end must reach the coordinators before the links say goodbye.
  work_for(kFlushNs / 2, [] { return false; });
  conductor->say_goodbye();
  work_for(kFlushNs / 2, [] { return false; });
  tuning->save();
  work_for(kFilesNs, [this] { return writing.count() == 0; });
  do_work();  // says what could not be written
  const std::size_t left = writing.count();
  if (left != 0) spdlog::warn("{} files are not written: the disk does not take them", left);
  spdlog::info("the longest turns: {}", conductor->turns().longest_text());
}

nlohmann::json Daemon::Composition::report_status(const Scope& scope) const {
  nlohmann::json status = {
      {"version", kVersion},
      {"node_id", node_text(self)},
      {"pid", ::getpid()},
      {"uptime_s", static_cast<double>(clock.now_ns() - started_ns) / 1e9},
      {"listen", net::to_text(listening)},
      {"advertise", to_text(net::Endpoint{advertised_endpoint(config, listening.port).host,
                                          advertised_endpoint(config, listening.port).port})},
      {"lanes", config.lanes},
      {"clients", conductor->reports().client_count(scope)},
      {"groups", conductor->reports().group_count(scope)},
      {"peers", conductor->reports().peer_count(scope)},
      {"transport", config.transport},
      {"carriers", carriers},
      {"kernel_target", codec::target::name()},
      {"silent_lanes", silent_lanes},
      {"waiting_settings", waiting_settings},
      {"draining", conductor->drain().is_on()},
      {"metrics", metrics ? net::to_text({config.metrics_listen.host, metrics->port()}) : ""}};
  // Grows with the arenas of all.
  if (scope.has_all()) status["rss_bytes"] = rss_bytes();
  security->report(status);
  return status;
}

Daemon::Daemon(std::unique_ptr<Composition> composition) : composition_(std::move(composition)) {}

Daemon::~Daemon() {
  if (!composition_) return;
  for (auto& lane : composition_->lanes) lane->thread->stop();
  composition_->control.reset();
  composition_->metrics.reset();
  composition_->acceptor.reset();
  composition_->conductor.reset();
  composition_->lanes.clear();
  composition_->shadow.reset();
}

Result<std::unique_ptr<Daemon>> Daemon::create(const Config& config,
                                               std::function<Result<Config>()> read_again) {
  auto all = std::make_unique<Composition>();
  all->read_again = std::move(read_again);
  if (auto opened = all->open(config); !opened) return tl::unexpected(opened.error());
  ControlOptions options;
  options.path = config.control_socket;
  options.mode = config.control_socket_mode;
  options.account_of = [whole = all.get()](std::uint32_t user) {
    return whole->sub_users.owner_of(user);
  };
  auto control = ControlServer::create(all->loop.impl().io, options, all->verbs, all->disposal);
  if (!control) return tl::unexpected(control.error());
  all->control = std::move(*control);
  auto view = OperatorView::create(
      all->config, all->access, {all->clock, all->lane_pointers(), *all->conductor, *all->tuning});
  if (!view) return tl::unexpected(view.error());
  all->view = std::move(*view);
  all->verbs.set_sources(
      {&all->access, all->conductor.get(), all->tuning.get(), all->view.get(),
       [whole = all.get()](const Scope& scope) { return whole->report_status(scope); },
       [whole = all.get()] { return flight_directory(whole->config); }});
  if (const Endpoint& listen = config.metrics_listen; !listen.host.empty()) {
    auto metrics =
        MetricsServer::create(listen.host, listen.port, [loop = &all->loop] { loop->wake(); });
    if (!metrics) return tl::unexpected(metrics.error());
    all->metrics = std::move(*metrics);
  }
  return std::unique_ptr<Daemon>(new Daemon(std::move(all)));
}

void Daemon::run() {
  Composition& all = *composition_;
  for (auto& lane : all.lanes) lane->thread->start();
  all.shadow->start();
  spdlog::info("ternd {} listens on {} ({}) and {}, {} lanes, kernels {}", kVersion,
               net::to_text(all.listening), all.security->text(), all.config.socket,
               all.config.lanes, codec::target::name());
  all.security->announce();
  tell_of_few_descriptors(all.config);
  spdlog::info("transport {}: {}", all.config.transport, all.carriers);
  all.conductor->turns().subtract(all.processor_wait);
  all.supervisor.ready(all.status_text());
  while (!all.stop && !all.conductor->drain().is_over()) {
    if (all.round() > 0) continue;
    const std::uint64_t deadline =
        std::min(all.conductor->next_deadline_ns(), all.watchdog->next_deadline_ns());
    const std::uint64_t now = all.clock.now_ns();
    // The round may have drained the wake-up of whoever asked during it.
    const bool is_asked = all.stop || all.reload || all.conductor->drain().is_over();
    if (!is_asked && deadline > now) all.loop.wait(std::min(deadline - now, kMaxSleepNs));
  }
  all.finish();
}

void Daemon::request_reload() noexcept {
  composition_->reload.store(true, std::memory_order_release);
  composition_->loop.wake();
}

void Daemon::request_stop() noexcept {
  composition_->stop.store(true, std::memory_order_release);
  composition_->loop.wake();
}

}  // namespace tern::daemon
