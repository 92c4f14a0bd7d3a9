// What clients say, and what follows when one is gone.

#include <cstring>
#include <utility>

#include "base/time_slice.h"
#include "daemon/conductor/conductor.h"

namespace tern::daemon {

// ---- A handler for each kind of packet ----------------------------------------------------------

// What a client has sent: foreign bytes, whose header has been read.
struct Conductor::Received {
  Client& client;
  const shm::PacketHeader& header;
  std::span<const std::byte> bytes;

  // Copies the packet out of foreign bytes; if they are not one, the client is dropped.
  template <typename Packet, typename Use>
  void read(Conductor& self, const char* why, Use use) const {
    Packet packet;
    if (shm::read_packet(bytes, packet)) return use(client, packet);
    self.on_bad_packet(client, header.request, why);
  }
};

struct Conductor::PacketHandler {
  const char* step;  // of the conductor's turn
  void (*handle)(Conductor& self, const Received& received);

  // Null: no client sends such a packet.
  static const PacketHandler* of(std::uint16_t kind);
};

const Conductor::PacketHandler* Conductor::PacketHandler::of(std::uint16_t kind) {
  using Self = Conductor;
  static constexpr const char* kMalformed = "it sent a malformed request";
  static constexpr PacketHandler kHello = {
      "on_hello", [](Self& self, const Received& received) {
        if (received.client.memory) {
          return self.on_bad_packet(received.client, received.header.request,
                                    "it sent a malformed hello");
        }
        received.read<shm::HelloPacket>(
            self, "it sent a malformed hello",
            [&](Client& client, const auto& packet) { self.on_hello(client, packet); });
      }};
  static constexpr PacketHandler kGroupMint = {
      "on_group_mint", [](Self& self, const Received& received) {
        self.on_group_mint(received.client, received.header.request);
      }};
  static constexpr PacketHandler kGroupJoin = {
      "on_group_join", [](Self& self, const Received& received) {
        received.read<shm::GroupJoinPacket>(
            self, "it sent a malformed join",
            [&](Client& client, const auto& packet) { self.on_group_join(client, packet); });
      }};
  static constexpr PacketHandler kGroupSplit = {
      "on_group_split", [](Self& self, const Received& received) {
        received.read<shm::GroupSplitPacket>(
            self, "it sent a malformed split",
            [&](Client& client, const auto& packet) { self.splits_.begin(client, packet); });
      }};
  static constexpr PacketHandler kGroupLeave = {
      "on_group_leave", [](Self& self, const Received& received) {
        received.read<shm::GroupLeavePacket>(
            self, "it sent a malformed leave",
            [&](Client& client, const auto& packet) { self.groups_.on_leave(client.id, packet); });
      }};
  static constexpr PacketHandler kTensorDeclare = {
      "on_tensor_declare", [](Self& self, const Received& received) {
        received.read<shm::TensorDeclarePacket>(
            self, "it sent a malformed declaration", [&](Client& client, const auto& packet) {
              if (self.tensors_.declare(client, packet)) return;
              self.clients_.hold_for_log(client, received.bytes);
            });
      }};
  static constexpr PacketHandler kTensorRelease = {
      "on_tensor_release", [](Self& self, const Received& received) {
        received.read<shm::TensorReleasePacket>(
            self, kMalformed,
            [&](Client& client, const auto& packet) { self.tensors_.release(client, packet); });
      }};
  static constexpr PacketHandler kTensorStats = {
      "on_tensor_stats", [](Self& self, const Received& received) {
        received.read<shm::TensorReleasePacket>(
            self, kMalformed,
            [&](Client& client, const auto& packet) { self.tensors_.tell_stats(client, packet); });
      }};
  static constexpr PacketHandler kTensorBlocks = {
      "on_tensor_blocks", [](Self& self, const Received& received) {
        received.read<shm::TensorReleasePacket>(
            self, kMalformed,
            [&](Client& client, const auto& packet) { self.tensors_.tell_blocks(client, packet); });
      }};
  static constexpr PacketHandler kTensorRecipes = {
      "on_tensor_recipes", [](Self& self, const Received& received) {
        received.read<shm::TensorReleasePacket>(self, kMalformed,
                                                [&](Client& client, const auto& packet) {
                                                  self.tensors_.tell_recipes(client, packet);
                                                });
      }};
  static constexpr PacketHandler kTensorState = {
      "on_tensor_state", [](Self& self, const Received& received) {
        received.read<shm::TensorStatePacket>(
            self, kMalformed,
            [&](Client& client, const auto& packet) { self.moves_.begin(client, packet); });
      }};
  static constexpr PacketHandler kRegionCreate = {
      "on_region_create", [](Self& self, const Received& received) {
        received.read<shm::RegionCreatePacket>(
            self, kMalformed,
            [&](Client& client, const auto& packet) { self.regions_.create(client, packet); });
      }};
  static constexpr PacketHandler kRegionOpen = {
      "on_region_open", [](Self& self, const Received& received) {
        received.read<shm::RegionPacket>(self, kMalformed, [&](Client& client, const auto& packet) {
          self.regions_.open(client, packet);
        });
      }};
  static constexpr PacketHandler kRegionFree = {
      "on_region_free", [](Self& self, const Received& received) {
        received.read<shm::RegionPacket>(self, kMalformed, [&](Client& client, const auto& packet) {
          self.regions_.free(client, packet);
        });
      }};
  static constexpr PacketHandler kDeviceReport = {
      "on_device_report", [](Self& self, const Received& received) {
        received.read<shm::DeviceReportPacket>(
            self, "it sent a malformed report", [&](Client& client, const auto& packet) {
              const char* const why = self.devices_.take(client, packet);
              if (why != nullptr) self.on_bad_packet(client, received.header.request, why);
            });
      }};
  static constexpr PacketHandler kGoodbye = {
      "on_goodbye", [](Self& self, const Received& received) {
        self.on_goodbye(received.client, received.header.request);
      }};
  switch (static_cast<shm::PacketKind>(kind)) {
    case shm::PacketKind::hello:
      return &kHello;
    case shm::PacketKind::group_mint:
      return &kGroupMint;
    case shm::PacketKind::group_join:
      return &kGroupJoin;
    case shm::PacketKind::group_split:
      return &kGroupSplit;
    case shm::PacketKind::group_leave:
      return &kGroupLeave;
    case shm::PacketKind::tensor_declare:
      return &kTensorDeclare;
    case shm::PacketKind::tensor_release:
      return &kTensorRelease;
    case shm::PacketKind::tensor_stats:
      return &kTensorStats;
    case shm::PacketKind::tensor_blocks:
      return &kTensorBlocks;
    case shm::PacketKind::tensor_recipes:
      return &kTensorRecipes;
    case shm::PacketKind::tensor_state:
      return &kTensorState;
    case shm::PacketKind::region_create:
      return &kRegionCreate;
    case shm::PacketKind::region_open:
      return &kRegionOpen;
    case shm::PacketKind::region_free:
      return &kRegionFree;
    case shm::PacketKind::device_report:
      return &kDeviceReport;
    case shm::PacketKind::goodbye:
      return &kGoodbye;
    // What the daemon says.
    case shm::PacketKind::welcome:
    case shm::PacketKind::group_minted:
    case shm::PacketKind::group_joined:
    case shm::PacketKind::tensor_declared:
    case shm::PacketKind::tensor_stats_reply:
    case shm::PacketKind::done:
    case shm::PacketKind::tensor_state_reply:
    case shm::PacketKind::group_split_reply:
    case shm::PacketKind::region_created:
    case shm::PacketKind::tensor_blocks_reply:
    case shm::PacketKind::tensor_recipes_reply:
      return nullptr;
  }
  return nullptr;  // no kind of this version
}

// ---- Packets ------------------------------------------------------------------------------------

void Conductor::on_client_connected(std::uint64_t id, shm::PeerCredentials credentials) {
  turns_.step("on_client_connected");
  auto client = clients_.make(id, std::move(credentials));
  const std::string problem = quotas_.connection_problem(client->credentials.uid);
  if (problem.empty()) return clients_.add(std::move(client));
  constexpr std::uint64_t kFirstRequest = 1;  // its hello
  refusals_.client(*client, kFirstRequest, Errc::quota_exceeded, problem);
  answers_.disconnect(id);
}

void Conductor::on_bad_packet(Client& client, std::uint64_t request, const char* why) {
  ++counters_->bad_packets;
  refusals_.log_end(client, why);
  answers_.done(client.id, request, Errc::protocol_error, why);
  drop_client(client, why);
}

void Conductor::on_client_packet(std::uint64_t id, std::span<const std::byte> bytes) {
  Client* const client = clients_.find(id);
  if (client == nullptr || client->is_going()) return;
  shm::PacketHeader header{};
  if (bytes.size() >= sizeof(header)) std::memcpy(&header, bytes.data(), sizeof(header));
  const PacketHandler* const handler = PacketHandler::of(header.kind);
  turns_.step(handler != nullptr ? handler->step : "on_bad_packet");
  const auto bad = [&](const char* why) { on_bad_packet(*client, header.request, why); };
  if (header.magic != shm::kPacketMagic) return bad("it sent what is not a packet of Tern");
  if (static_cast<shm::PacketKind>(header.kind) == shm::PacketKind::hello) {
    return handler->handle(*this, {*client, header, bytes});
  }
  if (header.version != wire::kShmAbi) return bad("it sent a packet of another version");
  if (!client->memory) return bad("it sent a request before its hello");
  if (client->held.empty() && clients_.admit(*client)) return on_request(*client, header, bytes);
  if (!clients_.hold(*client, bytes)) bad("it sent too many requests before one was answered");
}

void Conductor::on_request(Client& client, const shm::PacketHeader& header,
                           std::span<const std::byte> bytes) {
  const PacketHandler* const handler = PacketHandler::of(header.kind);
  if (handler != nullptr) return handler->handle(*this, {client, header, bytes});
  on_bad_packet(client, header.request, "it sent a packet of an unknown kind");
}

void Conductor::on_hello(Client& client, const shm::HelloPacket& packet) {
  const auto refuse = [&](Errc code, const std::string& text) {
    refusals_.client(client, packet.header.request, code, text);
    drop_client(client, "it was refused");
  };
  if (const Status sound = clients_.check_hello(packet); !sound) {
    return refuse(sound.error().code, sound.error().text);
  }
  if (const std::string why = drain_.hello_refusal(); !why.empty()) {
    return refuse(Errc::shutting_down, why);
  }
  if (const std::string why = clients_.access_problem(client.credentials); !why.empty()) {
    return refuse(Errc::permission_denied, why);
  }
  if (const std::string why = quotas_.hello_problem(client, packet.arena_bytes); !why.empty()) {
    return refuse(Errc::quota_exceeded, why);
  }
  if (const Status opened = clients_.open(client, packet); !opened) {
    return refuse(opened.error().code, opened.error().text);
  }
}

// ---- Groups -------------------------------------------------------------------------------------

void Conductor::on_group_mint(const Client& client, std::uint64_t request) {
  const auto id = mint_group_id(settings_.advertise.host, settings_.advertise.port);
  if (!id) return answers_.done(client.id, request, id.error().code, id.error().text);
  coordinator_.learn(*id, settings_.sub_users.owner_of(client.credentials.uid));
  auto packet = shm::make_packet<shm::GroupMintedPacket>(shm::PacketKind::group_minted, request);
  const std::string text = format_group_id(*id);
  std::memcpy(packet.id, text.c_str(), text.size() + 1);
  answers_.send(client.id, packet);
}

void Conductor::on_group_join(Client& client, const shm::GroupJoinPacket& packet) {
  const std::uint64_t request = packet.header.request;
  JoinRequest join;
  if (const Status read = joins_.read(packet, join); !read) {
    const std::string group = join.uid.empty() ? "" : short_group_uid(join.id);
    return refusals_.join({client, request, group}, read.error().code, read.error().text);
  }
  if (const std::string why = drain_.join_refusal(client, join.uid); !why.empty()) {
    return refusals_.join({client, request, short_group_uid(join.id)}, Errc::shutting_down, why);
  }
  const std::string problem = quotas_.join_problem(client.credentials.uid, join.uid);
  if (!problem.empty()) return refusals_.join_over_quota(client, request, problem);
  if (!joins_.add(client, join)) return;
  client.has_joined = true;
  if (joins_.is_here(join.id)) {
    coordinator_.learn(join.id, settings_.sub_users.owner_of(client.credentials.uid));
  }
}

// ---- The end of a client ------------------------------------------------------------------------

void Conductor::on_goodbye(Client& client, std::uint64_t request) {
  client.goodbye = request;
  bool member = false;
  for (const auto& [number, group] : groups_.all()) {
    MemberRank* const rank = group->rank_of_client(client.id);
    if (rank == nullptr) continue;
    member = true;
    if (rank->phase < MemberRank::Phase::leaving) groups_.leave(*group, *rank, 0);
  }
  if (!member) drop_client(client, "it disconnected");
}

void Conductor::on_client_closed(std::uint64_t id) {
  turns_.step("on_client_closed");
  Client* const client = clients_.find(id);
  if (client == nullptr) return;
  // One that is dropped already stays until lanes have let go of its memory.
  if (client->is_going()) {
    client->presence = ClientPresence::closed;
  } else {
    drop_client(*client, "its process ended or closed the connection", ClientPresence::closed);
  }
}

// Drops those that have not said hello in time, and answers one whose requests wait no longer for
// its seal or a log: that one may have many.
int Conductor::settle_clients() {
  std::vector<std::uint64_t> bad;
  int work = regions_.settle(bad);
  for (const std::uint64_t id : bad) {
    on_bad_packet(*clients_.find(id), 0, "it kept its memory from being sealed");
  }
  const TimeSlice slice(clock_, kSliceNs);
  for (Client* client : clients_.silent()) {
    ++counters_->clients_refused;
    refusals_.log_end(*client, "it has not said hello in time");
    drop_client(*client, "it did not say hello");
    ++work;
    if (slice.is_over()) break;
  }
  Client* const ready = clients_.take_ready();
  if (ready == nullptr) return work;
  const std::uint64_t id = ready->id;
  auto held = clients_.take_held(*ready);
  if (!clients_.admit(*ready)) on_bad_packet(*ready, 0, "it kept its memory from being sealed");
  const TimeSlice for_requests(clock_, kSliceNs);
  std::size_t answered = 0;
  while (answered < held.size()) {
    on_client_packet(id, held[answered++]);
    if (for_requests.is_over()) break;
  }
  held.erase(held.begin(), held.begin() + static_cast<std::ptrdiff_t>(answered));
  Client* const client = clients_.find(id);
  if (client != nullptr && !held.empty()) clients_.hold_rest(*client, std::move(held));
  return work + 1;
}

// Its joins, its ranks and its memory go, in this order.
void Conductor::drop_client(Client& client, const char* why, ClientPresence from_now_on) {
  if (client.is_going()) return;
  client.presence = from_now_on;
  if (!client.goodbye && client.memory) ++counters_->clients_lost;
  joins_.drop_client(client.id);
  moves_.forget(client.id);
  devices_.forget(client);
  groups_.lose_client(client.id, why);
  clients_.let_go(client, why);
}

}  // namespace tern::daemon
