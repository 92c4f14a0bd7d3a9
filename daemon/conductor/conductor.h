#pragma once

// The control thread: clients, groups, tensors, the links between conductors, and the operator's
// questions. It may lock, allocate and log; what it wants of a lane it asks by a command. do_work()
// does what there is to do and says how much, so that the same code runs on a thread or in a
// simulator.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "daemon/access/scope.h"
#include "daemon/lane/lane.h"
#include "daemon/membership/control_links.h"
#include "daemon/membership/coordinator.h"
#include "daemon/membership/member_group.h"
#include "daemon/membership/member_list.h"
#include "daemon/metrics/counter_table.h"
#include "daemon/service/log_limit.h"
#include "daemon/tensor/state_part.h"
#include "daemon/tuning/tuning.h"
#include "shm/packet_socket.h"

namespace tern::daemon {

// How the conductor answers its clients: over Unix sockets, or in a simulator by calls.
class ClientPort {
 public:
  virtual ~ClientPort() = default;
  virtual void reply(std::uint64_t client, std::span<const std::byte> packet,
                     std::span<const int> descriptors) = 0;
  // The conductor has no more to say to this client; its socket is to be closed.
  virtual void disconnect(std::uint64_t client) = 0;
};

struct ConductorSettings {
  std::string version;
  net::Endpoint advertise;
  std::uint64_t chunk_bytes = 256 << 10;
  std::uint64_t eager_bytes = 64 << 10;
  std::uint64_t lossy_min_bytes = 8 << 10;
  std::uint32_t max_ops_in_flight = 128;
  std::uint64_t handshake_timeout_ns = 5'000'000'000;
  std::uint64_t op_timeout_ns = 600'000'000'000;
  std::uint64_t join_timeout_max_ns = 3'600'000'000'000;
  std::uint64_t spin_ns = 20'000;
  std::uint64_t state_ttl_ns = 0;
  std::uint32_t cores = 1;
  std::uint32_t active_chunks = 64;
  bool verify = false;
  std::string default_gradient_recipe = "raw";
  std::uint32_t max_clients = 256;
  std::uint32_t max_clients_per_user = 64;
  std::uint32_t max_groups = 256;
  std::uint32_t max_groups_per_user = 128;
  std::uint32_t max_tensors = 65536;
  std::uint32_t max_tensors_per_user = 32768;
  std::uint32_t max_ops_in_flight_per_user = 16384;
  std::uint32_t max_links_per_user = 4096;
  std::uint64_t max_arena_bytes = 64ULL << 30;
  std::uint64_t max_state_bytes = 16ULL << 30;
  std::vector<std::uint32_t> allowed_uids, allowed_gids;
  std::string flight_directory;  // empty: no files are written
  net::LinkSettings link;
};

class Conductor final : public ControlSender,
                        private ControlLinks::Sink,
                        private net::AcceptorSink {
 public:
  // Everything given outlives the conductor. wake_lane(i) makes lane i look at its commands.
  Conductor(ConductorSettings settings, const Clock& clock, net::Transport& transport,
            wire::NodeId self, std::vector<Lane*> lanes, ClientPort& port,
            std::function<void(std::uint32_t)> wake_lane);
  ~Conductor() override;

  // Groups keep what they have agreed on; everything that comes after sees the new settings. Those
  // of another thread's parts, `link` and `cores`, must be what they were.
  void change_settings(ConductorSettings settings) { settings_ = std::move(settings); }

  // Who chooses for `recipe=auto`, before the first client; outlives the conductor. Without it auto
  // is raw.
  void set_tuning(Tuning* tuning) { tuning_ = tuning; }

  // What peers are told of this daemon: its version, and what its calendar is ahead of its clock.
  void set_about(std::function<nlohmann::json()> about) {
    about_ = about;
    links_.set_about(std::move(about));
  }

  // Where the conductor counts, before the first client; outlives the conductor.
  void count_in(ConductorCounters& counters) { counters_ = &counters; }

  int do_work();
  std::uint64_t next_deadline_ns() const;
  net::AcceptorSink& acceptor_sink() { return *this; }

  // ---- From the client port ----
  void on_client_connected(std::uint64_t client, shm::PeerCredentials credentials);
  void on_client_packet(std::uint64_t client, std::span<const std::byte> bytes);
  void on_client_closed(std::uint64_t client);  // hang-up or death

  // ---- From the daemon ----
  void begin_stop();  // refuses what is new
  bool idle() const;  // no op in flight on any lane
  void end_all(Errc code, const std::string& text);
  void say_goodbye();

  // ---- For the operator (conductor_report.cc) ----
  nlohmann::json report_clients(const Scope& scope) const;
  nlohmann::json report_peers() const;
  nlohmann::json report_groups(const Scope& scope) const;
  nlohmann::json report_tensors(const Scope& scope) const;
  nlohmann::json report_counters() const;
  // Numbers and ids of groups and tensors, and their names.
  nlohmann::json report_names() const;
  std::size_t client_count(const Scope& scope = Scope::of_all()) const;
  std::size_t group_count(const Scope& scope = Scope::of_all()) const;
  // Other daemons: those that are linked, or those in the groups of one user.
  std::size_t peer_count(const Scope& scope = Scope::of_all()) const;
  wire::NodeId self() const { return self_; }

  void send(LinkRef to, const nlohmann::json& message) override;

 private:
  struct Client {
    std::uint64_t id = 0;
    shm::PeerCredentials credentials;
    std::string job;
    std::unique_ptr<ClientMemory> memory;  // after the hello
    std::uint64_t arena_bytes = 0;
    std::uint64_t connected_ns = 0;
    std::uint32_t lanes_dropped = 0;
    std::uint64_t goodbye_request = 0;
    bool goodbye = false;  // it disconnects in order, and waits for the answer
    bool dropping = false;
    bool closed = false;
  };
  struct KeptState {  // codec state of a tensor that nobody has declared at present
    std::shared_ptr<TensorState> state;
    std::uint64_t expires_ns = 0;
    std::uint32_t uid = 0;  // whose quota it counts against
    std::string group;      // uid of the group that left it
  };

  // A codec state with a history that is gone, by user, and group and tensor: when the tensor is
  // declared again in an epoch of this group, its state has been reset.
  using LostStates = std::map<std::uint32_t, std::map<std::string, std::uint64_t>>;  // expires_ns

  // Clients (conductor_clients.cc).
  void on_hello(Client& client, const shm::HelloPacket& packet);
  void on_tensor_declare(Client& client, const shm::TensorDeclarePacket& packet);
  void on_tensor_release(Client& client, const shm::TensorReleasePacket& packet);
  void on_tensor_state(Client& client, const shm::TensorStatePacket& packet);
  void state_moved(std::uint64_t client, std::uint64_t request, std::uint64_t bytes);
  void on_tensor_stats(Client& client, const shm::TensorReleasePacket& packet);
  void on_goodbye(Client& client, std::uint64_t request);
  void drop_client(Client& client, const char* why);
  void say_whether_to_spin();
  void client_dropped(ClientMemory* memory);
  void answer(std::uint64_t client, std::uint64_t request, Errc code, const std::string& text);
  template <typename Packet>
  void answer_packet(std::uint64_t client, const Packet& packet);
  std::string check_access(const shm::PeerCredentials& credentials) const;
  // What a declaration says, without codec state.
  // `replay` is the log of choices that the recipe names, or empty.
  Result<std::shared_ptr<TensorState>> describe_tensor(const MemberGroup& group,
                                                       const shm::TensorDeclarePacket& packet,
                                                       const std::string& name,
                                                       std::uint32_t generation,
                                                       std::string& replay) const;
  // `freed` bytes of the user's are given back for it.
  Result<void> allocate_state(const Client& client, const MemberGroup& group, TensorState& state,
                              std::uint64_t freed) const;
  // With what the tuner has chosen at present.
  std::string recipe_text(const TensorState& state) const;
  void release_tensor(MemberGroup& group, std::uint64_t id);
  // Of a tensor that no lane uses any more.
  void keep_state(const MemberGroup& group, DeclaredTensor& tensor);
  void count_reset(const MemberGroup& group, TensorState& state);
  bool take_lost_state(const MemberGroup& group, const std::string& name);
  void remember_lost_state(std::uint32_t user, const std::string& group, const std::string& name);
  void expire_states(std::uint64_t now_ns);
  static CodecState::Shape codec_shape(const MemberGroup& group, const TensorState& state);
  std::uint64_t state_bytes_of(std::uint32_t uid) const;

  // Limits, also those of one user (conductor_quotas.cc). A problem is empty if there is none.
  struct UserShare {
    std::uint64_t groups = 0, ops_in_flight = 0, links = 0;
  };
  // `joining` is the uid of a group of which the user begins another epoch.
  UserShare share_of(std::uint32_t user, const std::string& joining) const;
  std::string connection_problem(std::uint32_t user) const;
  std::string hello_problem(const Client& client, std::uint64_t arena_bytes) const;
  std::string join_problem(std::uint32_t user, const std::string& uid) const;
  std::string tensor_problem(std::uint32_t user) const;
  std::string link_problem(const JoinSet& set, const MemberList& list) const;
  // Counts and logs it, and answers.
  void refuse_quota(const Client& client, std::uint64_t request, const std::string& text);
  void count_quota_refusal(const Client& client, const std::string& text);
  // False if the epoch would take too much: then this node's ranks and the coordinator know.
  bool admit_epoch(JoinSet& set, const MemberList& list);
  static std::vector<std::uint32_t> users_of(
      const MemberGroup& group, const std::map<std::uint64_t, std::unique_ptr<Client>>& clients);

  // Refusals (conductor_refusals.cc): counted, logged, answered. The lines are limited.
  struct Request {
    const Client& client;
    std::uint64_t number = 0;
    std::string_view group = {};
  };
  void log_user(const Client& client, const std::string& what);
  void log_refusal(const Request& request, const char* what, Errc code, const std::string& text);
  void refuse_join(const Request& join, Errc code, const std::string& text);
  void refuse_declaration(const Request& declaration, Errc code, const std::string& text);
  void log_peer(const std::string& peer, const std::string& text);
  void refuse_hello(const wire::HelloBody& hello, const std::string& text);
  void on_control_breach(const std::string& peer, const std::string& text) override;

  // Joins (conductor_joins.cc).
  void on_group_join(Client& client, const shm::GroupJoinPacket& packet);
  void on_join_answer(LinkRef from, const std::string& type, const nlohmann::json& message);
  void withdraw(const JoinSet& set, const JoiningRank& joining);
  void ask_again(JoinSet& set);
  void refuse_join(JoinSet& set, std::uint32_t rank, Errc code, const std::string& text);
  void refuse_late_join(JoinSet& set, const JoiningRank& joining);
  void refuse_late_joins(JoinSet& set);
  void expire_join(JoinSet& set, JoiningRank& joining);
  void expire_joins();

  // Groups (conductor_groups.cc, conductor_group_end.cc).
  void on_group_mint(Client& client, std::uint64_t request);
  void on_group_leave(Client& client, std::uint64_t request, std::uint64_t number);
  bool on_member_message(LinkRef from, const nlohmann::json& message);
  void on_members(LinkRef from, const std::string& uid, const nlohmann::json& message);
  // This node takes no part in an epoch; its ranks join in vain.
  void refuse_epoch(JoinSet& set, std::int64_t epoch, Errc code, const std::string& why);
  void end_epoch(LinkRef coordinator, const std::string& uid, std::int64_t epoch, Errc code,
                 const std::string& text);
  void make_group(JoinSet& set, const MemberList& list);
  void start_group(MemberGroup& group);
  void expire_starts();
  void end_group(MemberGroup& group, Errc code, const std::string& text, bool tell_coordinator);
  void remove_if_unused(MemberGroup& group);
  void weigh_jobs();
  std::set<LinkRef> coordinator_links() const;
  void leave(MemberGroup& group, MemberRank& rank, std::uint64_t request);
  void rank_released(MemberGroup& group, MemberRank& rank);
  void expire_silent_clients();
  MemberGroup* group_by_number(std::uint64_t number);
  MemberGroup* group_by_epoch(const std::string& uid, std::int64_t epoch);
  MemberRank* rank_of_client(MemberGroup& group, std::uint64_t client);
  const TensorState* tensor_of(const MemberGroup& group, std::uint64_t id) const;
  static std::string node_name(const MemberGroup& group, std::uint32_t node);

  // Lanes.
  void command(std::uint32_t lane, const Command& command);
  // To all lanes of the group; the command's `group` is each one's own.
  template <typename GroupCommand>
  void command_all(const MemberGroup& group, GroupCommand command) {
    for (std::uint32_t lane = 0; lane < group.lane_count; ++lane) {
      command.group = group.lanes[lane].get();
      backlog_[lane].push_back(command);
    }
    flush_commands();
  }
  int flush_commands();
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
  MemberGroup* group_of(const LaneGroup* lane_group);
  void record_flight(MemberGroup& group, const event::OpEnded& event);
  void write_due_flights();
  void write_flights(MemberGroup& group) const;

  // Links.
  void on_control_message(LinkRef from, const nlohmann::json& message) override;
  void on_control_link_lost(LinkRef link, Errc reason, bool worked,
                            const std::string& why) override;
  void on_incoming(std::unique_ptr<net::Incoming> incoming, const wire::FrameHeader& header,
                   const wire::HelloBody& hello) override;
  void on_refused(const std::string& from, Errc reason, const char* text) override;

  ConductorSettings settings_;
  const Clock& clock_;
  wire::NodeId self_;
  std::vector<Lane*> lanes_;
  ClientPort& port_;
  std::function<void(std::uint32_t)> wake_lane_;
  const char* transport_name_;
  ControlLinks links_;
  Coordinator coordinator_;
  std::map<std::uint64_t, std::unique_ptr<Client>> clients_;
  std::map<std::string, JoinSet> joins_;  // by uid
  std::map<std::uint64_t, std::unique_ptr<MemberGroup>> groups_;
  std::map<const LaneGroup*, MemberGroup*> group_of_lane_group_;
  std::map<std::string, KeptState> kept_states_;
  std::set<std::string> used_states_;
  LogLimit<std::uint32_t> user_log_;
  LogLimit<std::uint64_t> client_log_;
  LogLimit<std::string> peer_log_, refusal_log_;
  LostStates lost_states_;
  std::vector<std::unique_ptr<StateMove>> moves_;
  bool join_failed_ = false;
  std::uint64_t links_due_ns_ = 0;            // when links are looked at that nobody may need
  std::deque<nlohmann::json> inbox_;          // messages from this daemon to itself
  std::vector<std::deque<Command>> backlog_;  // commands that did not fit in a lane's ring
  Tuning* tuning_ = nullptr;
  std::uint64_t weighed_by_ = 0;  // Tuning::policy_version()
  std::function<nlohmann::json()> about_;
  std::uint64_t next_group_ = 1;
  bool stopping_ = false;

  ConductorCounters own_counters_;
  ConductorCounters* counters_ = &own_counters_;
};

}  // namespace tern::daemon
