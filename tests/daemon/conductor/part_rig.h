#pragma once

// What a part of the conductor needs around it: a clock moved by hand, two lanes that do nothing,
// links that lead nowhere, and a port that remembers what clients were told.

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/conductor/clients.h"
#include "daemon/conductor/flight_recorder.h"
#include "daemon/conductor/groups.h"
#include "daemon/conductor/joins.h"
#include "daemon/conductor/kept_states.h"
#include "daemon/conductor/outlets.h"
#include "daemon/conductor/quotas.h"
#include "daemon/conductor/refusals.h"
#include "daemon/lane/lane.h"
#include "daemon/membership/hmac.h"
#include "net/loopback.h"
#include "tests/net/asked_transport.h"

namespace tern::daemon::conductor_test {

inline constexpr std::uint32_t kAlice = 1001, kBob = 1002;  // users

inline constexpr std::uint64_t kSecond = 1'000'000'000;

struct Told {
  std::uint64_t client = 0;
  shm::PacketKind kind{};
  std::uint64_t request = 0;
  Errc status = Errc::ok;  // of a `done`
  std::string text;        // of a `done`
};

class RecordingPort final : public ClientPort {
 public:
  void reply(std::uint64_t client, std::span<const std::byte> packet,
             std::span<const int>) override {
    shm::PacketHeader header{};
    std::memcpy(&header, packet.data(), sizeof(header));
    Told answer{client, static_cast<shm::PacketKind>(header.kind), header.request, {}, {}};
    shm::DonePacket done;
    if (answer.kind == shm::PacketKind::done && shm::read_packet(packet, done)) {
      answer.status = static_cast<Errc>(done.status);
      answer.text = done.detail;
    }
    told.push_back(answer);
  }
  void disconnect(std::uint64_t client) override { disconnected.push_back(client); }

  std::vector<Told> told;
  std::vector<std::uint64_t> disconnected;
};

class PartRig : public ::testing::Test, private ControlLinks::Sink {
 protected:
  static constexpr std::uint32_t kLanes = 2;

  std::vector<Lane*> pointers() const {
    std::vector<Lane*> lanes;
    for (const auto& lane : lanes_) lanes.push_back(lane.get());
    return lanes;
  }
  // Takes all commands that lane has been sent.
  std::vector<Command> commands_of(std::uint32_t lane) {
    std::vector<Command> taken;
    for (Command command; lanes_[lane]->commands().pop(command);) taken.push_back(command);
    return taken;
  }
  // The messages of one kind that this daemon has sent to itself.
  std::vector<nlohmann::json> mail(const std::string& type) {
    std::vector<nlohmann::json> taken;
    while (post_.has_mail()) {
      nlohmann::json message = post_.take();
      if (message["t"] == type) taken.push_back(std::move(message));
    }
    return taken;
  }
  Client& connect(std::uint64_t id, std::uint32_t user = 1000) {
    shm::PeerCredentials credentials;
    credentials.uid = user;
    clients_.add(clients_.make(id, std::move(credentials)));
    return *clients_.find(id);
  }
  Client& greet(Client& client, std::uint64_t arena_bytes = 1 << 16) {
    auto hello = shm::make_packet<shm::HelloPacket>(shm::PacketKind::hello, 1);
    hello.abi_min = hello.abi_max = wire::kShmAbi;
    hello.arena_bytes = arena_bytes;
    std::strcpy(hello.job, "job");
    EXPECT_TRUE(clients_.open(client, hello));
    EXPECT_TRUE(clients_.admit(client));  // as its first request does
    return client;
  }
  // A group of two nodes, this one's ranks being those of the clients.
  MemberGroup& add_group(const std::vector<std::uint64_t>& clients) {
    auto group = std::make_unique<MemberGroup>();
    group->number = groups_.next_number();
    group->id = *mint_group_id("here", 7000);
    group->uid = to_hex(group->id.uid);
    group->job = "job";
    group->epoch = 1;
    group->lane_count = kLanes;
    group->chunk_bytes = 16 << 10;
    group->max_ops = 16;
    group->addresses = {"here:7000", "there:7000"};
    group->start_deadline_ns = clock_.now_ns() + kSecond;
    GroupSetup setup;
    setup.number = group->number;
    setup.shape.lanes = kLanes;
    setup.shape.chunk_bytes = group->chunk_bytes;
    setup.shape.eager_bytes = 1 << 10;
    setup.shape.max_ops_in_flight = 16;
    setup.shape.ranks.resize(2);
    for (const std::uint64_t client : clients) {
      MemberRank rank;
      rank.rank = static_cast<std::uint32_t>(group->ranks.size());
      rank.client = client;
      rank.join_request = 100 + client;
      group->ranks.push_back(rank);
      setup.shape.ranks[0].push_back(rank.rank);
      setup.local_clients.push_back(client);
      const std::uint32_t user = clients_.at(client).credentials.uid;
      group->users.push_back(user);
      group->uid_of_user = group->account = user;
    }
    setup.shape.ranks[1] = {static_cast<std::uint32_t>(clients.size())};
    setup.size = group->size = static_cast<std::uint32_t>(clients.size() + 1);
    setup.node_ids = {self_, {8, 8}};
    setup.endpoints = {{"here", 7000}, {"there", 7000}};
    group->ranks_of_node = setup.shape.ranks;
    for (setup.shape.lane = 0; setup.shape.lane < kLanes; ++setup.shape.lane) {
      group->lanes.push_back(std::make_unique<LaneGroup>(setup, *EagerRoom::make(setup.shape)));
    }
    MemberGroup& made = *group;
    groups_.add(std::move(group));
    return made;
  }
  std::optional<Told> answer_to(std::uint64_t request) const {
    for (const Told& told : port_.told) {
      if (told.request == request) return told;
    }
    return std::nullopt;
  }

  ManualClock clock_;
  net::LoopbackNetwork network_;
  net::LoopbackTransport loopback_{network_, {"here", 7000}};
  net::AskedTransport transport_{loopback_};
  const wire::NodeId self_{7, 7};
  std::vector<std::unique_ptr<Lane>> lanes_ = make_lanes();
  std::vector<std::uint32_t> woken_;
  ConductorSettings settings_ = usual_settings();
  RecordingPort port_;
  CounterPlace counters_;
  Disposal disposal_{Disposal::By::caller}, sealing_{Disposal::By::caller},
      reading_{Disposal::By::caller}, freeing_{Disposal::By::caller},
      writing_{Disposal::By::caller};
  ClientAnswers answers_{port_};
  LaneCommands commands_{pointers(), [this](std::uint32_t lane) { woken_.push_back(lane); }};
  ControlLinks links_{{transport_, clock_, {}, self_}, *this};
  ControlPost post_{links_, self_};
  UserLog log_{clock_};
  Outlets outlets_{clock_,    counters_, answers_, commands_, post_,
                   disposal_, sealing_,  reading_, log_};
  Refusals refusals_{outlets_};
  Clients clients_{settings_, outlets_};
  Joins joins_{settings_, outlets_, clients_, refusals_};
  FlightRecorder flights_{settings_.flight_directory, {clock_, log_, writing_}};
  Groups groups_{outlets_, flights_, freeing_};
  KeptStates kept_{settings_, clock_, disposal_};
  Quotas quotas_{settings_, {clients_, joins_, groups_, kept_, disposal_, sealing_}};

 private:
  void on_control_message(LinkRef, const nlohmann::json&) override {}
  void on_control_link_lost(LinkRef, Errc, bool, const std::string&) override {}
  void on_control_breach(const std::string&, const std::string&) override {}

  static ConductorSettings usual_settings() {
    ConductorSettings settings;
    settings.advertise = {"here", 7000};
    settings.tensors.default_gradient_recipe = "raw";
    return settings;
  }
  std::vector<std::unique_ptr<Lane>> make_lanes() {
    std::vector<std::unique_ptr<Lane>> lanes;
    LaneSettings lane;
    lane.chunk_bytes = 16 << 10;
    lane.receive_slabs = lane.send_slabs = lane.result_slabs = 2;
    for (lane.lane = 0; lane.lane < kLanes; ++lane.lane) {
      lanes.push_back(
          std::make_unique<Lane>(lane, LaneClients::Surroundings{clock_, transport_}, self_));
    }
    return lanes;
  }
};

}  // namespace tern::daemon::conductor_test
