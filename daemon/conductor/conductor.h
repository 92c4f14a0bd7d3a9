#pragma once

// The control thread. It may lock, allocate and log; what it wants of a lane it asks by a command.
// do_work() does what there is to do and says how much, so that the same code runs on a thread or
// in a simulator.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "daemon/conductor/clients.h"
#include "daemon/conductor/conductor_settings.h"
#include "daemon/conductor/device_reports.h"
#include "daemon/conductor/drain.h"
#include "daemon/conductor/epochs.h"
#include "daemon/conductor/flight_recorder.h"
#include "daemon/conductor/groups.h"
#include "daemon/conductor/joins.h"
#include "daemon/conductor/kept_states.h"
#include "daemon/conductor/outlets.h"
#include "daemon/conductor/quotas.h"
#include "daemon/conductor/refusals.h"
#include "daemon/conductor/regions.h"
#include "daemon/conductor/reports.h"
#include "daemon/conductor/splits.h"
#include "daemon/conductor/state_moves.h"
#include "daemon/conductor/tensor_registry.h"
#include "daemon/conductor/turn_watch.h"
#include "daemon/lane/lane.h"
#include "daemon/membership/control_links.h"
#include "daemon/membership/coordinator.h"
#include "daemon/service/user_log.h"
#include "daemon/tuning/tuning.h"

namespace tern::daemon {

// The loop: it takes what clients, lanes and other conductors say to the part that it is for, and
// where several parts are concerned it calls them in order. The parts own what there is.
class Conductor final : public net::AcceptorSink, private ControlLinks::Sink {
 public:
  // What the conductor works with. All of it outlives the conductor.
  struct Surroundings {
    const Clock& clock;
    net::Transport& transport;
    wire::NodeId self;
    std::vector<Lane*> lanes;
    ClientPort& clients;
    Disposal& disposal;                            // of what clients leave
    Disposal& writing;                             // of files
    std::function<void(std::uint32_t)> wake_lane;  // makes the lane look at its commands
    Tuning* tuning = nullptr;  // who chooses for `recipe=auto`; null: auto is raw
  };

  Conductor(ConductorSettings settings, const Surroundings& around);

  // Groups keep what they have agreed on; everything that comes after sees the new settings. Those
  // of another thread's parts, `link` and `cores`, must be what they were.
  void change_settings(ConductorSettings settings) { settings_ = std::move(settings); }

  // Where the conductor counts, and what peers are told of this daemon: its version, and what its
  // calendar is ahead of its clock. Before the first client; the counters outlive the conductor.
  void attach(ConductorCounters& counters, const std::function<nlohmann::json()>& about);

  int do_work();
  std::uint64_t next_deadline_ns() const;
  const Reports& reports() const { return reports_; }
  // Whoever runs the conductor says when a turn begins and ends; within it do_work(), and everything
  // that calls the conductor, say what they are at.
  TurnWatch& turns() { return turns_; }

  // ---- From the client port ----
  void on_client_connected(std::uint64_t client, shm::PeerCredentials credentials);
  void on_client_packet(std::uint64_t client, std::span<const std::byte> bytes);
  void on_client_closed(std::uint64_t client);  // hang-up or death

  // ---- From the acceptor of other daemons ----
  void on_incoming(std::unique_ptr<net::Incoming> incoming, const wire::FrameHeader& header,
                   const wire::HelloBody& hello) override;
  void on_refused(const std::string& from, Errc reason, const char* text) override;

  // ---- From the daemon ----
  Drain& drain() { return drain_; }
  bool idle() const { return !groups_.has_ops(); }
  void end_all(Errc code, const std::string& text);
  void say_goodbye();

 private:
  // Clients (conductor_clients.cc).
  struct Received;
  struct PacketHandler;
  void on_request(Client& client, const shm::PacketHeader& header,
                  std::span<const std::byte> bytes);
  void on_bad_packet(Client& client, std::uint64_t request, const char* why);
  void on_hello(Client& client, const shm::HelloPacket& packet);
  void on_group_mint(const Client& client, std::uint64_t request);
  void on_group_join(Client& client, const shm::GroupJoinPacket& packet);
  void on_goodbye(Client& client, std::uint64_t request);
  void drop_client(Client& client, const char* why,
                   ClientPresence from_now_on = ClientPresence::dropped);
  int settle_clients();

  // What lanes tell (conductor_events.cc).
  int drain_events();
  void on(std::uint32_t lane, const event::ClientDropped& event);
  void on(std::uint32_t lane, const event::ClientMisbehaved& event);
  void on(std::uint32_t lane, const event::EntryRefused& event);
  void on(std::uint32_t lane, const event::PeerRefused& event);
  void on(std::uint32_t lane, const event::CarrierChanged& event);
  void on(std::uint32_t lane, const event::GroupReady& event);
  void on(std::uint32_t lane, const event::GroupRemoved& event);
  void on(std::uint32_t lane, const event::RankReleased& event);
  void on(std::uint32_t lane, const event::TensorDropped& event);
  void on(std::uint32_t lane, const event::LinkLost& event);
  void on(std::uint32_t lane, const event::OpFailed& event);
  void on(std::uint32_t lane, const event::StateMoved& event);
  void on(std::uint32_t lane, const event::OpEnded& event);
  void on(std::uint32_t lane, const event::ChoiceInUse& event);
  void on(std::uint32_t lane, const event::ChunkChoice& event);
  void on(std::uint32_t lane, const event::StateReset& event);

  // Links.
  void on_control_message(LinkRef from, const nlohmann::json& message) override;
  void on_control_link_lost(LinkRef link, Errc reason, bool worked,
                            const std::string& why) override;
  void on_control_breach(const std::string& peer, const std::string& text) override;

  void forget_unused();

  // Of a turn, for each kind of things that may be many: one of them is always done.
  static constexpr std::uint64_t kSliceNs = 1'000'000;

  ConductorSettings settings_;
  const Clock& clock_;
  std::vector<Lane*> lanes_;
  Tuning* tuning_;

  CounterPlace counters_;
  TurnWatch turns_;

  // The ways out.
  ClientAnswers answers_;
  LaneCommands commands_;
  ControlLinks links_;
  ControlPost post_;
  Disposal sealing_;  // of clients' memory
  Disposal reading_;  // of logs of choices
  Disposal freeing_;  // of what lanes kept of groups
  UserLog log_;
  Outlets outlets_;

  // The parts, each after those that it calls.
  Coordinator coordinator_;
  Refusals refusals_;
  Clients clients_;
  Joins joins_;
  FlightRecorder flights_;
  Groups groups_;
  Drain drain_;
  KeptStates kept_;
  Quotas quotas_;
  Regions regions_;
  DeviceReports devices_;
  Epochs epochs_;
  Splits splits_;
  TensorRegistry tensors_;
  StateMoves moves_;
  Reports reports_;

  std::uint64_t forget_due_ns_ = 0;  // when links and states are looked at that nobody may need
  std::uint64_t weighed_by_ = 0;     // Tuning::policy_version()
  std::size_t first_lane_ = 0;       // whose events come first in the next turn
};

}  // namespace tern::daemon
