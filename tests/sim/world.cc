#include "world.h"

#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "base/check.h"
#include "client.h"
#include "network/switched_transport.h"

namespace tern::sim {

bool blocks_are_late() { return std::getenv("TERN_SIM_LATE_BLOCKS") != nullptr; }

Carriage& carriage() {
  static Carriage only;
  return only;
}

// ---- One daemon ---------------------------------------------------------------------------------

VirtualDaemon::VirtualDaemon(World& world, std::size_t index, const DaemonShape& daemon_shape)
    : shape(daemon_shape), at{"node" + std::to_string(index), 7000}, world_(world), index_(index) {}

VirtualDaemon::~VirtualDaemon() { stop(); }

void VirtualDaemon::start(const net::FaultSettings& faults) {
  const wire::NodeId self{world_.random.below(~std::uint64_t{0}),
                          world_.random.below(~std::uint64_t{0}) | 1};
  const auto add_transport = [&](bool of_lane) -> net::Transport& {
    carriers.push_back(world_.make_carrier(at, {index_, carriers.size()}));
    net::Transport* carrier = carriers.back().get();
    if (of_lane && carriage().wrap) {
      wraps.push_back(carriage().wrap(*carrier, world_.clock));
      carrier = wraps.back().get();
    }
    transports.push_back(std::make_unique<net::FaultyTransport>(
        *carrier, world_.clock, faults, world_.random.below(~std::uint64_t{0})));
    taps.push_back(std::make_unique<TappedTransport>(*transports.back(), world_.tap, of_lane));
    return *taps.back();
  };
  net::Transport& control = add_transport(false);
  daemon::LaneSettings lane;
  lane.chunk_bytes = shape.chunk_bytes;
  lane.receive_slabs = shape.receive_slabs;
  lane.send_slabs = shape.send_slabs;
  lane.result_slabs = shape.result_slabs;
  lane.port_bytes = shape.switch_port_bytes;
  lane.link.ack_delay_ns = shape.ack_delay_ns;
  if (shape.tuner) start_tuner();
  std::vector<daemon::Lane*> pointers;
  for (lane.lane = 0; lane.lane < shape.lanes; ++lane.lane) {
    net::Transport& transport = add_transport(true);
    lanes.push_back(std::make_unique<daemon::Lane>(
        lane, daemon::LaneClients::Surroundings{world_.clock, transport}, self, [this] {
          world_.wake({index_, 0});
        }));
    lanes.back()->set_shadow(shadow.get());
    if (blocks_are_late()) {
      executors.push_back(std::make_unique<LateExecutor>(executors.size() + 1));
      lanes.back()->set_executor(*executors.back());
    }
    pointers.push_back(lanes.back().get());
    if (tuning) tuning->add_lane(lanes.back()->counters());
  }
  daemon::ConductorSettings settings;
  settings.advertise = at;
  settings.ops.chunk_bytes = shape.chunk_bytes;
  settings.ops.eager_bytes = shape.eager_bytes;
  settings.tensors.default_gradient_recipe = "raw";
  settings.tensors.lossy_min_bytes = shape.lossy_min_bytes;
  settings.ops.max_ops_in_flight = shape.max_ops;
  settings.active_chunks = shape.active_chunks;
  settings.ops.op_timeout_ns = shape.op_timeout_ns;
  settings.tensors.state_ttl_ns = shape.state_ttl_ns;
  if (shape.adjust) shape.adjust(settings);
  conductor = std::make_unique<daemon::Conductor>(
      settings, daemon::Conductor::Surroundings{
                    world_.clock, control, self, pointers, *this, disposal, disposal,
                    [this](std::uint32_t number) {
                      world_.clock.advance_ns(world_.system_calls.wake_ns);
                      world_.wake({index_, 1 + number});
                    },
                    tuning.get()});
  acceptor = world_.make_acceptor(at, {index_, 0}, *conductor);
  for (std::size_t part = 0; part < parts(); ++part) world_.wake({index_, part});
}

void VirtualDaemon::start_tuner() {
  tuning = std::move(*daemon::Tuning::create({}, world_.clock, disposal));
  shadow = std::make_unique<daemon::Shadow>(
      tuning->recipes(), shape.lanes, [] {}, &world_.clock);
  tuning->set_shadow(shadow.get());
  shadow->calibrate();
}

// In the order of daemon.cc.
void VirtualDaemon::stop() {
  acceptor.reset();
  conductor.reset();
  lanes.clear();
  executors.clear();
  shadow.reset();
  tuning.reset();
  taps.clear();
  transports.clear();
  wraps.clear();
  carriers.clear();
}

int VirtualDaemon::step_lane(std::size_t lane) {
  const LaneCode code(true);
  return lanes[lane]->do_work(world_.clock.now_ns()).work;
}

int VirtualDaemon::step(std::size_t part) {
  if (part > 0) {
    const int work = step_lane(part - 1);
    expect_in_time(part, lanes[part - 1]->turns().last());
    return work;
  }
  return step_conductor();
}

int VirtualDaemon::step_conductor() {
  int work = shadow == nullptr ? 0 : shadow->do_work();
  run_turn([&](daemon::Conductor& woken) { work += acceptor->poll() + woken.do_work(); });
  return work;
}

void VirtualDaemon::wake_conductor(const std::function<void(daemon::Conductor&)>& call) {
  run_turn(call);
  world_.wake({index_, 0});
}

void VirtualDaemon::run_turn(const std::function<void(daemon::Conductor&)>& call) {
  conductor->turns().begin();
  call(*conductor);
  expect_in_time(0, conductor->turns().end());
}

void VirtualDaemon::expect_in_time(std::size_t part, const daemon::TurnMeter::Turn& turn) const {
  if (!turn.is_too_long) return;
  const std::string thread = part == 0 ? "conductor" : "lane " + std::to_string(part - 1);
  ADD_FAILURE() << at.host << ": " << daemon::turn_text(thread, turn);
}

std::uint64_t VirtualDaemon::next_deadline() const {
  std::uint64_t deadline = ~std::uint64_t{0};
  for (std::size_t part = 0; part < parts(); ++part)
    deadline = std::min(deadline, next_deadline_of(part));
  return deadline;
}

std::uint64_t VirtualDaemon::next_deadline_of(std::size_t part) const {
  const std::uint64_t own =
      part == 0 ? conductor->next_deadline_ns() : lanes[part - 1]->next_deadline_ns();
  return std::min(own, transports[part]->next_deadline_ns());
}

void VirtualDaemon::reply(std::uint64_t client, std::span<const std::byte> packet,
                          std::span<const int> descriptors) {
  world_.clock.advance_ns(world_.system_calls.reply_ns);
  if (Client* known = world_.client(client)) known->on_answer(packet, descriptors);
}

void VirtualDaemon::disconnect(std::uint64_t client) {
  if (world_.system_calls.close) world_.system_calls.close();
  if (Client* known = world_.client(client)) known->on_disconnected();
}

// ---- All of them --------------------------------------------------------------------------------

World::World(std::uint64_t seed, const std::optional<SwitchShape>& shape)
    : random(seed), tracing_(std::getenv("TERN_SIM_TRACE") != nullptr) {
  spdlog::set_level(tracing_ ? spdlog::level::debug : spdlog::level::off);
  if (shape) switched.emplace(*shape);
}

World::~World() {
  clients_.clear();
  daemons_.clear();
}

void World::trace(const char* format, ...) {
  if (!tracing_) return;
  std::printf("%12.6f ms  ", static_cast<double>(clock.now_ns()) / 1e6);
  va_list arguments;
  va_start(arguments, format);
  std::vprintf(format, arguments);
  va_end(arguments);
  std::printf("\n");
}

std::size_t World::add_daemon(const DaemonShape& shape) {
  daemons_.push_back(std::make_unique<VirtualDaemon>(*this, daemons_.size(), shape));
  daemons_.back()->start(faults_);
  return daemons_.size() - 1;
}

bool World::alive(std::size_t index) const { return daemons_[index]->running(); }

std::unique_ptr<net::Transport> World::make_carrier(const net::Endpoint& at,
                                                    const WakeList::Part& part) {
  if (!switched) return std::make_unique<net::LoopbackTransport>(network, at);
  return std::make_unique<SwitchedTransport>(*switched, at, [this, part] { wake(part); });
}

std::unique_ptr<net::Acceptor> World::make_acceptor(const net::Endpoint& at,
                                                    const WakeList::Part& part,
                                                    net::AcceptorSink& sink) {
  if (!switched) {
    return std::make_unique<net::LoopbackAcceptor>(network, clock, net::Listening{at}, sink);
  }
  return std::make_unique<SwitchedAcceptor>(
      *switched, net::Listening{at},
      SwitchedAcceptor::Owner{clock, sink, [this, part] { wake(part); }});
}

void World::kill(std::size_t index) {
  TERN_CHECK(!switched);
  trace("daemon %zu is killed", index);
  network.kill(daemons_[index]->at);
  for (auto& client : clients_) {
    if (client->daemon() == index) client->on_disconnected();
  }
  daemons_[index]->stop();
}

void World::restart(std::size_t index) {
  trace("daemon %zu starts again", index);
  network.revive(daemons_[index]->at);
  daemons_[index]->start(faults_);
}

void World::set_partitioned(std::size_t a, std::size_t b, bool partitioned) {
  TERN_CHECK(!switched);
  trace("daemons %zu and %zu are %s", a, b, partitioned ? "partitioned" : "together again");
  network.set_partitioned(daemons_[a]->at, daemons_[b]->at, partitioned);
}

void World::set_faults(const net::FaultSettings& faults) {
  faults_ = faults;
  for (auto& daemon : daemons_) {
    for (auto& transport : daemon->transports) transport->set_settings(faults);
  }
}

void World::cut_all(std::size_t index) {
  trace("all connections of daemon %zu are cut", index);
  for (auto& transport : daemons_[index]->transports) transport->cut_all();
}

std::uint64_t World::links_lost() const {
  std::uint64_t lost = 0;
  for (const auto& daemon : daemons_) {
    for (const auto& lane : daemon->lanes) lost += lane->counters().links_lost.load();
  }
  return lost;
}

Client& World::connect(std::size_t daemon, const std::string& job, std::uint64_t arena_bytes,
                       std::uint32_t user) {
  shm::PeerCredentials credentials;
  credentials.uid = user;
  return connect_as(daemon, std::move(credentials), job, arena_bytes);
}

Client& World::connect_as(std::size_t daemon, shm::PeerCredentials credentials,
                          const std::string& job, std::uint64_t arena_bytes) {
  clients_.push_back(
      std::make_unique<Client>(*this, daemon, next_client_++, std::move(credentials)));
  clients_.back()->hello(job, arena_bytes);
  return *clients_.back();
}

Client* World::client(std::uint64_t id) {
  for (auto& client : clients_) {
    if (client->id() == id) return client.get();
  }
  return nullptr;
}

void World::close(Client& client) {
  trace("client %llu ends", static_cast<unsigned long long>(client.id()));
  const std::uint64_t id = client.id();
  const std::size_t daemon = client.daemon();
  std::erase_if(clients_, [&](const auto& one) { return one.get() == &client; });
  if (!alive(daemon)) return;
  daemons_[daemon]->wake_conductor([id](auto& conductor) { conductor.on_client_closed(id); });
}

std::uint64_t World::next_deadline() const {
  std::uint64_t deadline = ~std::uint64_t{0};
  for (const auto& daemon : daemons_) {
    if (daemon->running()) deadline = std::min(deadline, daemon->next_deadline());
  }
  return deadline;
}

void World::step_before(std::uint64_t limit_ns) {
  ++rounds;
  switched ? step_woken(limit_ns) : step_all();
}

// Packets wake parts at times of their own, between those that the parts themselves have said.
void World::step_woken(std::uint64_t limit_ns) {
  const std::uint64_t now = clock.now_ns();
  switched->run_until(now);
  WakeList::Part part;
  if (!wakes_.take(now, part)) {
    switched->run_until(std::min(wakes_.next_ns(), limit_ns));
    clock.advance_ns(std::max(switched->now_ns(), now) - now);
    return;
  }
  VirtualDaemon& woken = *daemons_[part.daemon];
  const bool works = woken.step(part.number) > 0;
  const std::uint64_t sleeps =
      works ? now + kTurnNs
            : std::clamp(woken.next_deadline_of(part.number), now + 1'000, now + kLongestSleepNs);
  wakes_.wake_at(sleeps, part);
  if (works && actors) actors();
}

void World::step_all() {
  order_.clear();
  for (std::size_t i = 0; i < daemons_.size(); ++i) {
    if (!daemons_[i]->running()) continue;
    for (std::size_t part = 0; part < daemons_[i]->parts(); ++part) order_.emplace_back(i, part);
  }
  random.shuffle(order_);
  int work = actors ? actors() : 0;
  bool skipped = false;
  for (const auto& [index, part] : order_) {
    if (skips && random.one_in(4)) {
      skipped = true;
      continue;
    }
    if (daemons_[index]->running()) work += daemons_[index]->step(part);
  }
  if (work > 0 || skipped) {
    clock.advance_ns(work > 0 ? random.below(20'000) : 1);
    if (work > 0 || !random.one_in(3)) return;
  }
  const std::uint64_t now = clock.now_ns();
  const std::uint64_t deadline = next_deadline();
  clock.advance_ns(
      deadline > now ? std::clamp<std::uint64_t>(deadline - now, 1'000, kLongestSleepNs) : 1'000);
}

bool World::run_until(const std::function<bool()>& done, std::uint64_t limit_ns) {
  const std::uint64_t limit = clock.now_ns() + limit_ns;
  // Without progress in time a run would never end; a round moves time by a microsecond or so at
  // least.
  std::uint64_t budget = 3'000'000;
  while (!done()) {
    if (clock.now_ns() >= limit || budget-- == 0) return false;
    step_before(limit);
  }
  return true;
}

void World::run_for(std::uint64_t ns) {
  const std::uint64_t end = clock.now_ns() + ns;
  run_until([&] { return clock.now_ns() >= end; }, ns + 1);
}

std::string World::find_leak() const {
  std::string leaks;
  const auto expect = [&](std::size_t daemon, const char* what, std::uint64_t used) {
    if (used != 0) {
      leaks += "daemon " + std::to_string(daemon) + ": " + std::to_string(used) + " " + what +
               " in use\n";
    }
  };
  for (std::size_t i = 0; i < daemons_.size(); ++i) {
    if (!daemons_[i]->running()) continue;
    expect(i, "clients", daemons_[i]->conductor->reports().client_count());
    expect(i, "groups", daemons_[i]->conductor->reports().group_count());
    for (const auto& lane : daemons_[i]->lanes) {
      daemon::FrameMemory& memory = lane->memory();
      const collective::Room taken = memory.taken();
      expect(i, "clients of a lane", lane->client_count());
      expect(i, "accumulators", taken.accumulators);
      expect(i, "receive slabs", taken.receive_slabs);
      expect(i, "contribution tokens", taken.contributions);
      expect(i, "result tokens", taken.results);
      expect(i, "send slabs", memory.send_slabs().count() - memory.send_slabs().free_count());
      expect(i, "result slabs", memory.result_slabs().count() - memory.result_slabs().free_count());
    }
  }
  return leaks;
}

}  // namespace tern::sim
