// What clients say, and what follows when one is gone.

#include <cstring>
#include <utility>

#include "base/time_slice.h"
#include "daemon/conductor/conductor.h"

namespace tern::daemon {

// ---- A handler for each kind of packet ----------------------------------------------------------

namespace {

// The packet that a method of a part, or of the conductor, takes from a client.
template <typename Method>
struct Takes;
template <typename Part, typename Result, typename From, typename Packet>
struct Takes<Result (Part::*)(From, const Packet&)> {
  using type = Packet;
};

}  // namespace

// What a client has sent: foreign bytes, whose header has been read.
struct Conductor::Received {
  Client& client;
  const shm::PacketHeader& header;
  std::span<const std::byte> bytes;

  // Copies the packet out of the foreign bytes. False: the bytes are no such packet.
  template <typename Packet, typename Use>
  bool read(Use use) const {
    Packet packet;
    if (!shm::read_packet(bytes, packet)) return false;
    use(client, packet);
    return true;
  }
};

struct Conductor::PacketHandler {
  const char* step;  // of the conductor's turn
  const char* why;   // a client is dropped whose bytes are no such packet
  // False: the bytes are no such packet.
  bool (*handle)(Conductor& self, const Received& received);

  static PacketHandler of(std::uint16_t kind);

  // To a method of the conductor.
  template <auto kMethod>
  static bool own(Conductor& self, const Received& received) {
    return received.read<typename Takes<decltype(kMethod)>::type>(
        [&](Client& client, const auto& packet) { (self.*kMethod)(client, packet); });
  }
  // To a method of a part.
  template <auto kPart, auto kMethod>
  static bool part(Conductor& self, const Received& received) {
    return received.read<typename Takes<decltype(kMethod)>::type>(
        [&](Client& client, const auto& packet) { ((self.*kPart).*kMethod)(client, packet); });
  }
};

Conductor::PacketHandler Conductor::PacketHandler::of(std::uint16_t kind) {
  using Self = Conductor;
  constexpr const char* kMalformed = "it sent a malformed request";
  switch (static_cast<shm::PacketKind>(kind)) {
    case shm::PacketKind::hello:
      return {"on_hello", "it sent a malformed hello", [](Self& self, const Received& received) {
                return !received.client.memory && own<&Self::on_hello>(self, received);
              }};
    case shm::PacketKind::group_mint:
      return {"on_group_mint", kMalformed, [](Self& self, const Received& received) {
                self.on_group_mint(received.client, received.header.request);
                return true;
              }};
    case shm::PacketKind::group_join:
      return {"on_group_join", "it sent a malformed join", own<&Self::on_group_join>};
    case shm::PacketKind::group_split:
      return {"on_group_split", "it sent a malformed split", part<&Self::splits_, &Splits::begin>};
    case shm::PacketKind::group_leave:
      return {
          "on_group_leave", "it sent a malformed leave", [](Self& self, const Received& received) {
            return received.read<shm::GroupLeavePacket>([&](Client& client, const auto& packet) {
              self.groups_.on_leave(client.id, packet);
            });
          }};
    case shm::PacketKind::tensor_declare:
      return {
          "on_tensor_declare", "it sent a malformed declaration",
          [](Self& self, const Received& received) {
            return received.read<shm::TensorDeclarePacket>([&](Client& client, const auto& packet) {
              if (self.tensors_.declare(client, packet)) return;
              self.clients_.hold_for_log(client, received.bytes);
            });
          }};
    case shm::PacketKind::tensor_release:
      return {"on_tensor_release", kMalformed, part<&Self::tensors_, &TensorRegistry::release>};
    case shm::PacketKind::tensor_stats:
      return {"on_tensor_stats", kMalformed, part<&Self::tensors_, &TensorRegistry::tell_stats>};
    case shm::PacketKind::tensor_blocks:
      return {"on_tensor_blocks", kMalformed, part<&Self::tensors_, &TensorRegistry::tell_blocks>};
    case shm::PacketKind::tensor_recipes:
      return {"on_tensor_recipes", kMalformed,
              part<&Self::tensors_, &TensorRegistry::tell_recipes>};
    case shm::PacketKind::tensor_state:
      return {"on_tensor_state", kMalformed, part<&Self::moves_, &StateMoves::begin>};
    case shm::PacketKind::region_create:
      return {"on_region_create", kMalformed, part<&Self::regions_, &Regions::create>};
    case shm::PacketKind::region_open:
      return {"on_region_open", kMalformed, part<&Self::regions_, &Regions::open>};
    case shm::PacketKind::region_free:
      return {"on_region_free", kMalformed, part<&Self::regions_, &Regions::free>};
    case shm::PacketKind::device_report:
      return {
          "on_device_report", "it sent a malformed report",
          [](Self& self, const Received& received) {
            return received.read<shm::DeviceReportPacket>([&](Client& client, const auto& packet) {
              const char* const problem = self.devices_.take(client, packet);
              if (problem != nullptr) self.on_bad_packet(client, received.header.request, problem);
            });
          }};
    case shm::PacketKind::goodbye:
      return {"on_goodbye", kMalformed, [](Self& self, const Received& received) {
                self.on_goodbye(received.client, received.header.request);
                return true;
              }};
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
      break;
  }
  return {"on_bad_packet", "it sent a packet of an unknown kind",
          [](Self&, const Received&) { return false; }};
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
  turns_.step(PacketHandler::of(header.kind).step);
  const auto bad = [&](const char* why) { on_bad_packet(*client, header.request, why); };
  if (header.magic != shm::kPacketMagic) return bad("it sent what is not a packet of Tern");
  if (static_cast<shm::PacketKind>(header.kind) == shm::PacketKind::hello) {
    return on_request(*client, header, bytes);
  }
  if (header.version != wire::kShmAbi) return bad("it sent a packet of another version");
  if (!client->memory) return bad("it sent a request before its hello");
  if (client->held.empty() && clients_.admit(*client)) return on_request(*client, header, bytes);
  if (!clients_.hold(*client, bytes)) bad("it sent too many requests before one was answered");
}

void Conductor::on_request(Client& client, const shm::PacketHeader& header,
                           std::span<const std::byte> bytes) {
  const PacketHandler handler = PacketHandler::of(header.kind);
  if (!handler.handle(*this, {client, header, bytes})) {
    on_bad_packet(client, header.request, handler.why);
  }
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
