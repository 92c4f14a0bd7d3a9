#pragma once

// Virtual daemons in one thread. Everything is the real thing except what carries frames (loopback
// with injected faults, or a switched network), the clock (moved by hand) and the clients' sockets
// (calls). A run depends on the seed only, apart from the daemons' random secrets, which decide
// nothing.

#include <cstdarg>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/clock.h"
#include "daemon/conductor/conductor.h"
#include "daemon/lane/lane.h"
#include "daemon/lane/shadow.h"
#include "daemon/tuning/tuning.h"
#include "late_executor.h"
#include "net/faulty.h"
#include "net/link.h"
#include "net/loopback.h"
#include "network/switched_network.h"
#include "tapped_transport.h"
#include "wake_list.h"

namespace tern::sim {

inline constexpr std::uint64_t kSecond = 1'000'000'000;

class Client;

// Whether all daemons' blocks are done late and in a random order: TERN_SIM_LATE_BLOCKS is set.
bool blocks_are_late();

// What a program puts between the transports of lanes and the loopback that carries them, if it is
// set before the first world, by the program's own sources.
struct Carriage {
  std::function<std::unique_ptr<net::Transport>(net::Transport& below, const Clock& clock)> wrap;
};
Carriage& carriage();

// Drawn the same on every machine; the standard's distributions are not.
class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  std::uint64_t below(std::uint64_t bound) { return bound == 0 ? 0 : engine_() % bound; }
  std::uint64_t between(std::uint64_t low, std::uint64_t high) {
    return low + below(high - low + 1);
  }
  bool one_in(std::uint64_t n) { return below(n) == 0; }
  template <typename T>
  const T& pick(const std::vector<T>& from) {
    return from[below(from.size())];
  }
  template <typename T>
  void shuffle(std::vector<T>& items) {
    for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[below(i)]);
  }

 private:
  std::mt19937_64 engine_;
};

struct DaemonShape {
  std::uint32_t lanes = 1;
  std::uint64_t chunk_bytes = 16 << 10;
  std::uint64_t eager_bytes = 1 << 10;
  std::uint64_t lossy_min_bytes = 1 << 10;
  std::uint32_t receive_slabs = 16;
  std::uint32_t send_slabs = 8;
  std::uint32_t result_slabs = 8;
  std::uint64_t switch_port_bytes = 0;
  std::uint32_t active_chunks = 16;
  std::uint32_t max_ops = 16;
  std::uint64_t op_timeout_ns = 30'000'000'000;
  std::uint64_t state_ttl_ns = 0;
  std::uint64_t ack_delay_ns = net::LinkSettings{}.ack_delay_ns;
  std::uint64_t arena_bytes = 8 << 20;  // of each rank of a Cluster
  // With a tuner, whose shadow is one of the conductor's parts here: codecs take no time.
  bool tuner = false;
  // What a test wants beyond that.
  std::function<void(daemon::ConductorSettings&)> adjust;
};

// What conductors' system calls take on the world's clock, which else stands still in a turn.
struct SystemCalls {
  std::uint64_t reply_ns = 0;  // to a client
  std::uint64_t wake_ns = 0;   // a lane
  // Closes what a client is connected by.
  std::function<void()> close;
};

class VirtualDaemon;

class World {
 public:
  // With a switch the daemons are hosts on it, and parts are stepped when something wakes them, in
  // the order in which that happens. Nothing can be killed or partitioned there.
  explicit World(std::uint64_t seed, const std::optional<SwitchShape>& shape = std::nullopt);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  std::size_t add_daemon(const DaemonShape& shape);
  std::size_t daemons() const { return daemons_.size(); }
  VirtualDaemon& daemon(std::size_t index) { return *daemons_[index]; }
  bool alive(std::size_t index) const;
  // As if the process were killed: what is under way is lost, its clients lose their daemon.
  void kill(std::size_t index);
  void restart(std::size_t index);  // another node id, and no memory
  void set_partitioned(std::size_t a, std::size_t b, bool partitioned);
  void set_faults(const net::FaultSettings& faults);
  void cut_all(std::size_t index);
  std::uint64_t links_lost() const;

  // A process that connects to the daemon; its hello is under way.
  Client& connect(std::size_t daemon, const std::string& job = "job",
                  std::uint64_t arena_bytes = 1 << 20, std::uint32_t user = 0);
  // The same as whoever the kernel says it is.
  Client& connect_as(std::size_t daemon, shm::PeerCredentials credentials,
                     const std::string& job = "job", std::uint64_t arena_bytes = 1 << 20);
  Client* client(std::uint64_t id);
  void close(Client& client);  // its process ends
  const std::vector<std::unique_ptr<Client>>& clients() const { return clients_; }

  // Every component does some work, in random order. If nothing is left to do, time moves to the
  // next deadline. A turn over its budget (docs/architecture.md) fails the test and is named.
  // On a switched network the next that is woken does.
  void step() { step_before(clock.now_ns() + kLongestSleepNs); }
  // False if `done` did not come true within so much simulated time.
  bool run_until(const std::function<bool()>& done, std::uint64_t limit_ns = 100'000'000'000);
  void run_for(std::uint64_t ns);
  // Sees every frame that a daemon sends.
  Tap tap;
  SystemCalls system_calls;
  // Called in every round, for what the clients' programs do; returns work done.
  std::function<int()> actors;

  // Empty, or what is still held somewhere though no client is left.
  std::string find_leak() const;

  ManualClock clock;
  Random random;
  net::LoopbackNetwork network;
  std::optional<SwitchedNetwork> switched;  // in place of that
  std::uint64_t rounds = 0;
  bool skips = true;  // components miss a round now and then
  void trace(const char* format, ...) __attribute__((format(printf, 2, 3)));

  // ---- For the daemons ----
  std::unique_ptr<net::Transport> make_carrier(const net::Endpoint& at, const WakeList::Part& part);
  std::unique_ptr<net::Acceptor> make_acceptor(const net::Endpoint& at, const WakeList::Part& part,
                                               net::AcceptorSink& sink);
  // The part has something to do. Only a switched world need hear of it.
  void wake(const WakeList::Part& part) {
    if (switched) wakes_.wake_at(clock.now_ns(), part);
  }

 private:
  static constexpr std::uint64_t kLongestSleepNs = 100'000'000;
  // What a turn takes that did some work, on a switched network.
  static constexpr std::uint64_t kTurnNs = 5'000;

  void step_before(std::uint64_t limit_ns);
  void step_all();
  void step_woken(std::uint64_t limit_ns);
  std::uint64_t next_deadline() const;

  bool tracing_ = false;
  std::vector<std::unique_ptr<VirtualDaemon>> daemons_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::uint64_t next_client_ = 1;
  net::FaultSettings faults_;
  std::vector<std::pair<std::size_t, std::size_t>> order_;
  WakeList wakes_;
};

class VirtualDaemon final : public daemon::ClientPort {
 public:
  VirtualDaemon(World& world, std::size_t index, const DaemonShape& shape);
  ~VirtualDaemon() override;

  void start(const net::FaultSettings& faults);
  void stop();
  bool running() const { return conductor != nullptr; }
  std::size_t parts() const { return 1 + lanes.size(); }
  int step(std::size_t part);  // 0 is the conductor
  // What wakes the conductor, as a turn of its own.
  void wake_conductor(const std::function<void(daemon::Conductor&)>& call);
  std::uint64_t next_deadline() const;
  std::uint64_t next_deadline_of(std::size_t part) const;

  void reply(std::uint64_t client, std::span<const std::byte> packet,
             std::span<const int> descriptors) override;
  void disconnect(std::uint64_t client) override;

  DaemonShape shape;
  net::Endpoint at;
  std::vector<std::unique_ptr<net::Transport>> carriers;  // the conductor's first
  std::vector<std::unique_ptr<net::Transport>> wraps;     // of them, if carriage() has any
  std::vector<std::unique_ptr<net::FaultyTransport>> transports;
  std::vector<std::unique_ptr<TappedTransport>> taps;
  daemon::Disposal disposal{daemon::Disposal::By::caller};
  std::unique_ptr<daemon::Tuning> tuning;  // these two: null without a tuner
  std::unique_ptr<daemon::Shadow> shadow;
  std::vector<std::unique_ptr<LateExecutor>> executors;  // with late blocks: of the lanes
  std::vector<std::unique_ptr<daemon::Lane>> lanes;
  std::unique_ptr<daemon::Conductor> conductor;
  std::unique_ptr<net::Acceptor> acceptor;

 private:
  void start_tuner();
  int step_conductor();
  void run_turn(const std::function<void(daemon::Conductor&)>& call);
  int step_lane(std::size_t lane);
  void expect_in_time(std::size_t part, const daemon::TurnMeter::Turn& turn) const;

  World& world_;
  std::size_t index_;
};

}  // namespace tern::sim
