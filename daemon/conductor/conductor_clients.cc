// Clients: from their hello to the last use of their memory, and the tensors they declare.

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "daemon/conductor/conductor.h"
#include "daemon/service/log.h"
#include "shm/wakeup.h"

namespace tern::daemon {
void Conductor::answer(std::uint64_t client, std::uint64_t request, Errc code,
                       const std::string& text) {
  auto packet = shm::make_packet<shm::DonePacket>(shm::PacketKind::done, request);
  packet.status = static_cast<std::int32_t>(code);
  std::strncpy(packet.detail, text.c_str(), sizeof(packet.detail) - 1);
  answer_packet(client, packet);
}

template <typename Packet>
void Conductor::answer_packet(std::uint64_t client, const Packet& packet) {
  port_.reply(client, shm::packet_bytes(packet), {});
}
template void Conductor::answer_packet(std::uint64_t, const shm::GroupMintedPacket&);
template void Conductor::answer_packet(std::uint64_t, const shm::GroupJoinedPacket&);
template void Conductor::answer_packet(std::uint64_t, const shm::TensorDeclaredPacket&);
template void Conductor::answer_packet(std::uint64_t, const shm::TensorStatsPacket&);
template void Conductor::answer_packet(std::uint64_t, const shm::TensorStateReplyPacket&);

// Empty if the user may connect.
std::string Conductor::check_access(const shm::PeerCredentials& credentials) const {
  if (settings_.allowed_uids.empty() && settings_.allowed_gids.empty()) return "";
  const auto has = [](const auto& list, std::uint32_t id) {
    return std::find(list.begin(), list.end(), id) != list.end();
  };
  if (has(settings_.allowed_uids, credentials.uid) ||
      has(settings_.allowed_gids, credentials.gid)) {
    return "";
  }
  for (const gid_t group : credentials.groups) {
    if (has(settings_.allowed_gids, group)) return "";
  }
  return "uid " + std::to_string(credentials.uid) +
         " is not in allowed_uids or allowed_gids of the daemon's configuration";
}

void Conductor::on_client_connected(std::uint64_t id, shm::PeerCredentials credentials) {
  auto client = std::make_unique<Client>();
  client->id = id;
  client->credentials = std::move(credentials);
  client->connected_ns = clock_.now_ns();
  if (const std::string problem = connection_problem(client->credentials.uid); !problem.empty()) {
    ++counters_->clients_refused;
    constexpr std::uint64_t kFirstRequest = 1;  // its hello
    refuse_quota(*client, kFirstRequest, problem);
    return port_.disconnect(id);
  }
  clients_[id] = std::move(client);
}

void Conductor::on_client_packet(std::uint64_t id, std::span<const std::byte> bytes) {
  const auto found = clients_.find(id);
  if (found == clients_.end() || found->second->dropping) return;
  Client& client = *found->second;
  shm::PacketHeader header{};
  if (bytes.size() >= sizeof(header)) std::memcpy(&header, bytes.data(), sizeof(header));
  const auto bad = [&](const char* why) {
    ++counters_->bad_packets;
    log_user(client, std::string("is disconnected: ") + why);
    answer(id, header.request, Errc::protocol_error, why);
    drop_client(client, why);
  };
  if (header.magic != shm::kPacketMagic) return bad("it sent what is not a packet of Tern");
  const auto kind = static_cast<shm::PacketKind>(header.kind);
  if (kind == shm::PacketKind::hello) {
    shm::HelloPacket packet;
    if (!shm::read_packet(bytes, packet) || client.memory) return bad("it sent a malformed hello");
    return on_hello(client, packet);
  }
  if (header.version != wire::kShmAbi) return bad("it sent a packet of another version");
  if (!client.memory) return bad("it sent a request before its hello");
  switch (kind) {
    case shm::PacketKind::group_mint:
      return on_group_mint(client, header.request);
    case shm::PacketKind::group_join: {
      shm::GroupJoinPacket packet;
      if (!shm::read_packet(bytes, packet)) return bad("it sent a malformed join");
      return on_group_join(client, packet);
    }
    case shm::PacketKind::group_leave: {
      shm::GroupLeavePacket packet;
      if (!shm::read_packet(bytes, packet)) return bad("it sent a malformed leave");
      return on_group_leave(client, header.request, packet.group);
    }
    case shm::PacketKind::tensor_declare: {
      shm::TensorDeclarePacket packet;
      if (!shm::read_packet(bytes, packet)) return bad("it sent a malformed declaration");
      return on_tensor_declare(client, packet);
    }
    case shm::PacketKind::tensor_release:
    case shm::PacketKind::tensor_stats: {
      shm::TensorReleasePacket packet;
      if (!shm::read_packet(bytes, packet)) return bad("it sent a malformed request");
      return kind == shm::PacketKind::tensor_release ? on_tensor_release(client, packet)
                                                     : on_tensor_stats(client, packet);
    }
    case shm::PacketKind::tensor_state: {
      shm::TensorStatePacket packet;
      if (!shm::read_packet(bytes, packet)) return bad("it sent a malformed request");
      return on_tensor_state(client, packet);
    }
    case shm::PacketKind::goodbye:
      return on_goodbye(client, header.request);
    default:
      return bad("it sent a packet of an unknown kind");
  }
}

void Conductor::on_hello(Client& client, const shm::HelloPacket& packet) {
  const std::uint64_t request = packet.header.request;
  const auto refuse = [&](Errc code, const std::string& text) {
    ++counters_->clients_refused;
    if (code == Errc::quota_exceeded) {
      count_quota_refusal(client, text);
    } else {
      log_user(client, "was refused: " + text);
    }
    answer(client.id, request, code, text);
    drop_client(client, "it was refused");
  };
  if (packet.abi_min > wire::kShmAbi || packet.abi_max < wire::kShmAbi) {
    return refuse(Errc::version_mismatch, "the library speaks shared-memory ABI " +
                                              std::to_string(packet.abi_min) + " to " +
                                              std::to_string(packet.abi_max) + ", the daemon " +
                                              std::to_string(wire::kShmAbi));
  }
  if (!shm::terminated(packet.job) || packet.job[0] == '\0') {
    return refuse(Errc::invalid_argument, "the job's label must have 1 to 63 bytes");
  }
  if (stopping_) return refuse(Errc::shutting_down, "the daemon is stopping");
  if (const std::string why = check_access(client.credentials); !why.empty()) {
    return refuse(Errc::permission_denied, why);
  }
  if (const std::string problem = hello_problem(client, packet.arena_bytes); !problem.empty()) {
    return refuse(Errc::quota_exceeded, problem);
  }
  const auto lane_count = static_cast<std::uint32_t>(lanes_.size());
  auto segment = shm::Segment::create(lane_count, packet.arena_bytes,
                                      static_cast<std::uint32_t>(settings_.spin_ns));
  if (!segment) return refuse(segment.error().code, segment.error().text);
  auto notify = shm::make_notify_pair();
  if (!notify) return refuse(notify.error().code, notify.error().text);
  auto memory = std::make_unique<ClientMemory>();
  memory->id = client.id;
  memory->segment = std::move(*segment);
  memory->notify = std::move(notify->first);
  std::vector<int> descriptors{memory->segment.fd(), notify->second.get()};
  for (std::uint32_t lane = 0; lane < lane_count; ++lane) {
    auto eventfd = shm::make_eventfd();
    if (!eventfd) return refuse(eventfd.error().code, eventfd.error().text);
    memory->eventfds.push_back(std::move(*eventfd));
    descriptors.push_back(memory->eventfds.back().get());
  }
  client.job = packet.job;
  client.arena_bytes = packet.arena_bytes;
  client.memory = std::move(memory);
  ++counters_->clients_accepted;
  say_whether_to_spin();
  const command::AddClient add{client.memory.get()};
  for (std::uint32_t lane = 0; lane < lane_count; ++lane) command(lane, add);
  auto welcome = shm::make_packet<shm::WelcomePacket>(shm::PacketKind::welcome, request);
  welcome.abi = wire::kShmAbi;
  welcome.lane_count = static_cast<std::uint16_t>(lane_count);
  welcome.segment_bytes = client.memory->segment.segment_bytes();
  welcome.eager_bytes = settings_.eager_bytes;
  port_.reply(client.id, shm::packet_bytes(welcome), descriptors);
  log_about({.job = client.job}, spdlog::level::info, "client {} connected: pid {}, uid {}, job {}",
            client.id, client.credentials.pid, client.credentials.uid, client.job);
}

// Spinning helps only while every lane and every client can have a core of its own.
void Conductor::say_whether_to_spin() {
  std::size_t count = lanes_.size();
  for (const auto& [id, client] : clients_) count += client->memory ? 1 : 0;
  for (auto& [id, client] : clients_) {
    if (client->memory) client->memory->segment.set_cores_are_few(settings_.cores <= count);
  }
}

// ---- The end of a client ------------------------------------------------------------------------

void Conductor::on_goodbye(Client& client, std::uint64_t request) {
  client.goodbye = true;
  client.goodbye_request = request;
  bool member = false;
  for (auto& [number, group] : groups_) {
    MemberRank* rank = rank_of_client(*group, client.id);
    if (rank == nullptr) continue;
    member = true;
    if (!rank->leaving) leave(*group, *rank, 0);
  }
  if (!member) drop_client(client, "it disconnected");
}

void Conductor::on_client_closed(std::uint64_t id) {
  const auto found = clients_.find(id);
  if (found == clients_.end()) return;
  Client& client = *found->second;
  client.closed = true;
  drop_client(client, "its process ended or closed the connection");
}

// Connections that have not said hello in time: they hold descriptors and count as clients.
void Conductor::expire_silent_clients() {
  const std::uint64_t now = clock_.now_ns();
  std::vector<Client*> silent;
  for (auto& [id, client] : clients_) {
    if (client->memory || client->dropping) continue;
    if (now >= client->connected_ns + settings_.handshake_timeout_ns)
      silent.push_back(client.get());
  }
  for (Client* client : silent) {
    ++counters_->clients_refused;
    log_user(*client, "is disconnected: it has not said hello in time");
    drop_client(*client, "it did not say hello");
  }
}

void Conductor::drop_client(Client& client, const char* why) {
  if (client.dropping) return;
  client.dropping = true;
  const bool lost = !client.goodbye && client.memory;
  if (lost) ++counters_->clients_lost;
  for (auto& [uid, set] : joins_) {
    std::vector<std::uint32_t> ranks;
    for (const auto& [rank, joining] : set.ranks) {
      if (joining.client == client.id) ranks.push_back(rank);
    }
    for (const auto rank : ranks) {
      withdraw(set, set.ranks.at(rank));
      set.ranks.erase(rank);
    }
  }
  std::erase_if(joins_, [](const auto& one) { return one.second.ranks.empty(); });
  std::vector<MemberGroup*> affected;
  for (auto& [number, group] : groups_) {
    if (rank_of_client(*group, client.id) != nullptr) affected.push_back(group.get());
  }
  for (MemberGroup* group : affected) {
    MemberRank& rank = *rank_of_client(*group, client.id);
    end_group(*group, Errc::rank_lost,
              "lost rank " + std::to_string(rank.rank) + " on " + node_name(*group, group->node) +
                  ": " + why,
              true);
    rank.left = true;
    remove_if_unused(*group);
  }
  if (!client.memory) {
    port_.disconnect(client.id);
    clients_.erase(client.id);
    return;
  }
  log_about({.job = client.job}, spdlog::level::info, "client {} (pid {}, job {}) is gone: {}",
            client.id, client.credentials.pid, client.job, why);
  const command::DropClient drop{client.memory.get()};
  for (std::uint32_t lane = 0; lane < lanes_.size(); ++lane) command(lane, drop);
}

void Conductor::client_dropped(ClientMemory* memory) {
  const auto found = clients_.find(memory->id);
  if (found == clients_.end() || ++found->second->lanes_dropped < lanes_.size()) return;
  if (found->second->goodbye_request != 0 && !found->second->closed) {
    answer(memory->id, found->second->goodbye_request, Errc::ok, "");
  }
  port_.disconnect(memory->id);
  clients_.erase(found);
  say_whether_to_spin();
}

}  // namespace tern::daemon
