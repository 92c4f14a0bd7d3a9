// Clients: from their hello to the last use of their memory, and the tensors they declare.

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "daemon/conductor.h"
#include "shm/wakeup.h"

namespace tern::daemon {
namespace {

bool terminated(std::span<const char> text) noexcept {
  return std::memchr(text.data(), '\0', text.size()) != nullptr;
}

// FNV-1a over name and generation: the same on all nodes, and another one when a name is declared
// again, so that uses of the old and the new declaration cannot be mixed up.
std::uint64_t tensor_id(const std::string& name, std::uint32_t generation) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325;
  const auto mix = [&hash](unsigned char byte) { hash = (hash ^ byte) * 0x100000001b3; };
  for (const char c : name) mix(static_cast<unsigned char>(c));
  mix(0);
  for (int shift = 0; shift < 32; shift += 8) mix(static_cast<unsigned char>(generation >> shift));
  return hash == 0 ? 1 : hash;
}

}  // namespace

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
  clients_[id] = std::move(client);
}

void Conductor::on_client_packet(std::uint64_t id, std::span<const std::byte> bytes) {
  const auto found = clients_.find(id);
  if (found == clients_.end() || found->second->dropping) return;
  Client& client = *found->second;
  shm::PacketHeader header{};
  if (bytes.size() >= sizeof(header)) std::memcpy(&header, bytes.data(), sizeof(header));
  const auto bad = [&](const char* why) {
    ++counters_.bad_packets;
    spdlog::warn("client {} (pid {}, uid {}): {}; it is disconnected", id, client.credentials.pid,
                 client.credentials.uid, why);
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
    case shm::PacketKind::goodbye:
      return on_goodbye(client, header.request);
    default:
      return bad("it sent a packet of an unknown kind");
  }
}

void Conductor::on_hello(Client& client, const shm::HelloPacket& packet) {
  const std::uint64_t request = packet.header.request;
  const auto refuse = [&](Errc code, const std::string& text) {
    ++counters_.clients_refused;
    spdlog::warn("client pid {} uid {} was refused: {}", client.credentials.pid,
                 client.credentials.uid, text);
    answer(client.id, request, code, text);
    drop_client(client, "it was refused");
  };
  if (packet.abi_min > wire::kShmAbi || packet.abi_max < wire::kShmAbi) {
    return refuse(Errc::version_mismatch, "the library speaks shared-memory ABI " +
                                              std::to_string(packet.abi_min) + " to " +
                                              std::to_string(packet.abi_max) + ", the daemon " +
                                              std::to_string(wire::kShmAbi));
  }
  if (!terminated(packet.job) || packet.job[0] == '\0') {
    return refuse(Errc::invalid_argument, "the job's label must have 1 to 63 bytes");
  }
  if (stopping_) return refuse(Errc::shutting_down, "the daemon is stopping");
  if (const std::string why = check_access(client.credentials); !why.empty()) {
    return refuse(Errc::permission_denied, why);
  }
  std::uint32_t of_user = 0;
  std::uint64_t arena_of_user = 0;
  for (const auto& [id, other] : clients_) {
    if (!other->memory || other->credentials.uid != client.credentials.uid) continue;
    ++of_user;
    arena_of_user += other->arena_bytes;
  }
  if (clients_.size() > settings_.max_clients) {
    return refuse(Errc::quota_exceeded, "the daemon has max_clients = " +
                                            std::to_string(settings_.max_clients) + " clients");
  }
  if (of_user >= settings_.max_clients_per_user) {
    return refuse(Errc::quota_exceeded, "this user has max_clients_per_user = " +
                                            std::to_string(settings_.max_clients_per_user) +
                                            " clients");
  }
  if (packet.arena_bytes == 0 || packet.arena_bytes > settings_.max_arena_bytes ||
      arena_of_user + packet.arena_bytes > settings_.max_arena_bytes) {
    return refuse(Errc::quota_exceeded,
                  "an arena of " + std::to_string(packet.arena_bytes) + " bytes beside " +
                      std::to_string(arena_of_user) +
                      " exceeds max_arena_bytes = " + std::to_string(settings_.max_arena_bytes));
  }
  // Spinning helps only where every lane and client has a core of its own.
  const bool cores_suffice = settings_.cores > lanes_.size() + clients_.size();
  const auto lane_count = static_cast<std::uint32_t>(lanes_.size());
  auto segment =
      shm::Segment::create(lane_count, packet.arena_bytes,
                           cores_suffice ? static_cast<std::uint32_t>(settings_.spin_ns) : 0);
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
  ++counters_.clients_accepted;
  Command add;
  add.kind = CommandKind::add_client;
  add.client = client.memory.get();
  for (std::uint32_t lane = 0; lane < lane_count; ++lane) command(lane, add);
  auto welcome = shm::make_packet<shm::WelcomePacket>(shm::PacketKind::welcome, request);
  welcome.abi = wire::kShmAbi;
  welcome.lane_count = static_cast<std::uint16_t>(lane_count);
  welcome.segment_bytes = client.memory->segment.segment_bytes();
  welcome.eager_bytes = settings_.eager_bytes;
  port_.reply(client.id, shm::packet_bytes(welcome), descriptors);
  spdlog::info("client {} connected: pid {}, uid {}, job {}", client.id, client.credentials.pid,
               client.credentials.uid, client.job);
}

// ---- The end of a client
// --------------------------------------------------------------------------

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
    ++counters_.clients_refused;
    spdlog::warn("client pid {} uid {} has not said hello in time; it is disconnected",
                 client->credentials.pid, client->credentials.uid);
    drop_client(*client, "it did not say hello");
  }
}

void Conductor::drop_client(Client& client, const char* why) {
  if (client.dropping) return;
  client.dropping = true;
  const bool lost = !client.goodbye && client.memory;
  if (lost) ++counters_.clients_lost;
  for (auto& [uid, set] : joins_) {
    std::vector<std::uint32_t> ranks;
    for (const auto& [rank, joining] : set.ranks) {
      if (joining.client == client.id) ranks.push_back(rank);
    }
    for (const auto rank : ranks) {
      send(set.coordinator, {{"t", "withdraw"}, {"uid", uid}, {"rank", rank}});
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
  spdlog::info("client {} (pid {}, job {}) is gone: {}", client.id, client.credentials.pid,
               client.job, why);
  Command drop;
  drop.kind = CommandKind::drop_client;
  drop.client = client.memory.get();
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
}

// ---- Tensors
// --------------------------------------------------------------------------------------

std::uint64_t Conductor::state_bytes_of(std::uint32_t uid) const {
  std::uint64_t bytes = 0;
  for (const auto& [number, group] : groups_) {
    if (group->uid_of_user != uid) continue;
    for (const auto& [id, tensor] : group->tensors) bytes += tensor.state->state_bytes();
  }
  return bytes;
}

Result<std::shared_ptr<TensorState>> Conductor::make_tensor(const Client& client,
                                                            MemberGroup& group,
                                                            const shm::TensorDeclarePacket& packet,
                                                            const std::string& name,
                                                            std::uint32_t generation) {
  auto state = std::make_shared<TensorState>();
  state->id = tensor_id(name, generation);
  state->name = name;
  state->dtype = static_cast<DType>(packet.dtype);
  state->role = static_cast<Role>(packet.role);
  state->count = packet.count;
  state->exempt = packet.exempt != 0;
  state->priority = packet.priority;
  state->generation = generation;
  const std::string text = packet.recipe[0] != '\0'         ? packet.recipe
                           : role_may_be_lossy(state->role) ? settings_.default_gradient_recipe
                                                            : "raw";
  auto recipe = codec::parse_recipe(text);
  if (!recipe) return fail(Errc::bad_recipe, recipe.error().text);
  state->recipe = *recipe;
  state->one_lane = codec::is_lossy(*recipe) && recipe->compressor == codec::Compressor::threelc &&
                    recipe->scale_elements == 0;
  if (state->one_lane && !codec::needs_residual(state->recipe)) {
    return fail(Errc::bad_recipe, "scale=tensor needs error feedback: ef(3lc:scale=tensor)");
  }
  const bool lossy = role_may_be_lossy(state->role) && !state->exempt &&
                     group.addresses.size() > 1 && codec::needs_residual(state->recipe);
  if (!lossy) return state;
  const std::uint64_t bytes = state->count * sizeof(float);
  if (state_bytes_of(client.credentials.uid) + bytes > settings_.max_state_bytes) {
    return fail(Errc::quota_exceeded, "codec state of " + std::to_string(bytes) +
                                          " bytes more exceeds max_state_bytes = " +
                                          std::to_string(settings_.max_state_bytes));
  }
  // Zero pages until the first use.
  state->residual.reset(static_cast<float*>(std::calloc(state->count, sizeof(float))));
  if (!state->residual) return fail(Errc::out_of_memory, "no memory for the tensor's codec state");
  return state;
}

void Conductor::on_tensor_declare(Client& client, const shm::TensorDeclarePacket& packet) {
  const std::uint64_t request = packet.header.request;
  MemberGroup* group = group_by_number(packet.group);
  MemberRank* rank = group != nullptr ? rank_of_client(*group, client.id) : nullptr;
  if (rank == nullptr) {
    return answer(client.id, request, Errc::unknown_group, "this client is not in that group");
  }
  const auto refuse = [&](Errc code, const std::string& text) {
    answer(client.id, request, code, text);
  };
  if (!terminated(packet.name) || packet.name[0] == '\0') {
    return refuse(Errc::invalid_argument, "a tensor's name must have 1 to 127 bytes");
  }
  if (!terminated(packet.recipe) || !terminated(packet.level)) {
    return refuse(Errc::invalid_argument, "the recipe's or level's text does not end");
  }
  const std::string level = packet.level;
  if (!level.empty() && level != "lossless" && level != "conservative" && level != "balanced" &&
      level != "aggressive") {
    return refuse(Errc::invalid_argument,
                  "level is one of lossless, conservative, balanced, aggressive");
  }
  if (dtype_bytes(static_cast<DType>(packet.dtype)) == 0) {
    return refuse(Errc::invalid_argument, "unknown dtype " + std::to_string(packet.dtype));
  }
  if (packet.role > static_cast<std::uint8_t>(Role::weights)) {
    return refuse(Errc::invalid_argument, "unknown role " + std::to_string(packet.role));
  }
  if (packet.count == 0 || packet.count > (std::uint64_t{1} << 40)) {
    return refuse(Errc::invalid_argument, "count must be 1 .. 2^40");
  }
  if (group->ended) return refuse(group->end_code, group->end_text);
  if (group->tensors.size() >= settings_.max_tensors) {
    return refuse(Errc::quota_exceeded, "the group has max_tensors tensors");
  }
  const auto index = static_cast<std::uint32_t>(rank - group->ranks.data());
  const std::uint64_t bit = std::uint64_t{1} << index;
  const std::string name = packet.name;
  for (const auto& [id, tensor] : group->tensors) {
    if (tensor.state->name == name && (tensor.holders & bit) != 0) {
      return refuse(Errc::already_exists, "the tensor " + name + " is declared already");
    }
  }
  const std::uint32_t generation = rank->declarations[name];
  auto made = make_tensor(client, *group, packet, name, generation);
  if (!made) return refuse(made.error().code, made.error().text);
  const std::uint64_t id = (*made)->id;
  auto found = group->tensors.find(id);
  if (found != group->tensors.end()) {
    const TensorState& other = *found->second.state;
    const TensorState& mine = **made;
    if (other.name != name || found->second.holders == 0) {
      return refuse(Errc::already_exists, "the name " + name + " cannot be told from " +
                                              other.name + "; choose another name");
    }
    if (other.dtype != mine.dtype || other.count != mine.count || other.role != mine.role ||
        other.recipe.memory != mine.recipe.memory || other.exempt != mine.exempt ||
        other.one_lane != mine.one_lane) {
      return refuse(Errc::mismatch, "another rank of this node declared " + name + " as " +
                                        std::to_string(other.count) + " x " +
                                        std::string(dtype_name(other.dtype)) + " " +
                                        std::string(role_name(other.role)) + " with recipe " +
                                        codec::canonical_text(other.recipe));
    }
  } else {
    DeclaredTensor tensor;
    tensor.state = *made;
    const std::string key = std::to_string(client.credentials.uid) + "/" + client.job + "/" + name;
    if (tensor.state->residual && used_states_.insert(key).second) {
      // The only tensor of this name in the job: its state outlives the declaration.
      tensor.state_key = key;
      if (const auto kept = kept_states_.find(key); kept != kept_states_.end()) {
        if (kept->second.state->count == tensor.state->count && !kept->second.state->doubtful) {
          tensor.state->residual = std::move(kept->second.state->residual);
        } else {
          ++counters_.state_resets;
          bump(tensor.state->lanes[0].resets, std::uint64_t{1});
          spdlog::info("the codec state of {} was reset: other size, or an op was in flight", name);
        }
        kept_states_.erase(kept);
      }
    }
    found = group->tensors.emplace(id, std::move(tensor)).first;
    Command add;
    add.kind = CommandKind::add_tensor;
    add.tensor = found->second.state.get();
    command_all(*group, add);
  }
  ++rank->declarations[name];
  found->second.holders |= bit;
  auto reply =
      shm::make_packet<shm::TensorDeclaredPacket>(shm::PacketKind::tensor_declared, request);
  reply.tensor = id;
  reply.next_sequence = 0;
  reply.one_lane = found->second.state->one_lane ? 1 : 0;
  answer_packet(client.id, reply);
}

void Conductor::release_tensor(MemberGroup& group, std::uint64_t id) {
  DeclaredTensor& tensor = group.tensors.at(id);
  Command drop;
  drop.kind = CommandKind::drop_tensor;
  drop.tensor = tensor.state.get();
  command_all(group, drop);
}

void Conductor::keep_state(DeclaredTensor& tensor) {
  if (tensor.state_key.empty()) return;
  used_states_.erase(tensor.state_key);
  if (settings_.state_ttl_ns > 0) {
    kept_states_[tensor.state_key] = {tensor.state, clock_.now_ns() + settings_.state_ttl_ns};
  }
}

void Conductor::on_tensor_release(Client& client, const shm::TensorReleasePacket& packet) {
  MemberGroup* group = group_by_number(packet.group);
  MemberRank* rank = group != nullptr ? rank_of_client(*group, client.id) : nullptr;
  const auto found = rank != nullptr ? group->tensors.find(packet.tensor)
                                     : std::map<std::uint64_t, DeclaredTensor>::iterator{};
  const std::uint64_t bit = rank != nullptr ? std::uint64_t{1} << (rank - group->ranks.data()) : 0;
  if (rank == nullptr || found == group->tensors.end() || (found->second.holders & bit) == 0) {
    return answer(client.id, packet.header.request, Errc::unknown_tensor,
                  "the tensor is not declared");
  }
  found->second.holders &= ~bit;
  if (found->second.holders == 0) release_tensor(*group, packet.tensor);
  answer(client.id, packet.header.request, Errc::ok, "");
}

void Conductor::on_tensor_stats(Client& client, const shm::TensorReleasePacket& packet) {
  MemberGroup* group = group_by_number(packet.group);
  if (group == nullptr || rank_of_client(*group, client.id) == nullptr ||
      !group->tensors.contains(packet.tensor)) {
    return answer(client.id, packet.header.request, Errc::unknown_tensor,
                  "the tensor is not declared");
  }
  const TensorState& state = *group->tensors.at(packet.tensor).state;
  const TensorTotals totals = total(state);
  auto reply = shm::make_packet<shm::TensorStatsPacket>(shm::PacketKind::tensor_stats_reply,
                                                        packet.header.request);
  reply.ops = totals.ops;
  reply.bytes_raw = totals.bytes_raw;
  reply.bytes_sent = totals.bytes_sent;
  const double ratio = totals.residual_ratio();
  std::memcpy(&reply.residual_ratio_bits, &ratio, sizeof(ratio));
  reply.encode_ns = totals.encode_ns;
  reply.queue_ns = totals.queue_ns;
  reply.wire_ns = totals.wire_ns;
  reply.decode_ns = totals.decode_ns;
  reply.wait_ns = totals.wait_ns;
  reply.raw_fallbacks = totals.raw_fallbacks;
  reply.state_bytes = state.state_bytes();
  std::strncpy(reply.recipe, codec::canonical_text(state.recipe).c_str(), sizeof(reply.recipe) - 1);
  answer_packet(client.id, reply);
}

}  // namespace tern::daemon
