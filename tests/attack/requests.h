#pragma once

// What a hostile client asks for, where a refusal is an answer like others.

#include <optional>
#include <string>

#include "tests/e2e/hostile_client.h"

namespace tern::attack {

using e2e::HostileClient;

template <typename Answer, typename Request>
std::optional<Answer> ask(HostileClient& client, const Request& request) {
  if (!client.socket().send(shm::packet_bytes(request))) return std::nullopt;
  const auto packet = client.receive();
  Answer answer;
  if (packet && shm::read_packet(packet->bytes, answer)) return answer;
  return std::nullopt;
}

inline shm::GroupJoinPacket join_packet(const std::string& id, std::int32_t rank,
                                        std::int32_t size) {
  auto join = shm::make_packet<shm::GroupJoinPacket>(shm::PacketKind::group_join, 3);
  std::snprintf(join.id, sizeof join.id, "%s", id.c_str());
  join.rank = rank;
  join.size = size;
  join.timeout_ms = 20'000;
  return join;
}

// Empty if it is refused.
inline std::string mint(HostileClient& client) {
  const auto minted = ask<shm::GroupMintedPacket>(
      client, shm::make_packet<e2e::HeaderOnly>(shm::PacketKind::group_mint, 2));
  return minted ? minted->id : "";
}

// A group of this client alone; 0 if it is refused.
inline std::uint64_t join_alone(HostileClient& client) {
  const auto joined = ask<shm::GroupJoinedPacket>(client, join_packet(mint(client), 0, 1));
  return joined ? joined->group : 0;
}

// A group of these two; 0 if it is refused.
inline std::uint64_t join_two(HostileClient& first, HostileClient& second) {
  const std::string id = mint(first);
  if (!first.socket().send(shm::packet_bytes(join_packet(id, 0, 2)))) return 0;
  if (!ask<shm::GroupJoinedPacket>(second, join_packet(id, 1, 2))) return 0;
  const auto packet = first.receive();
  shm::GroupJoinedPacket joined;
  return packet && shm::read_packet(packet->bytes, joined) ? joined.group : 0;
}

inline bool leave(HostileClient& client, std::uint64_t group) {
  auto leave = shm::make_packet<shm::GroupLeavePacket>(shm::PacketKind::group_leave, 5);
  leave.group = group;
  return ask<shm::DonePacket>(client, leave).has_value();
}

// The id of a tensor of f32 with that recipe; 0 if it is refused.
struct Declaration {
  std::uint64_t group;
  std::uint64_t count;
  std::string name;
  std::string recipe;  // empty: exact values
};
inline std::uint64_t declare(HostileClient& client, const Declaration& says) {
  auto packet = shm::make_packet<shm::TensorDeclarePacket>(shm::PacketKind::tensor_declare, 4);
  packet.group = says.group;
  packet.count = says.count;
  packet.role = says.recipe.empty() ? 0 : 1;  // gradient
  std::snprintf(packet.name, sizeof packet.name, "%s", says.name.c_str());
  std::snprintf(packet.recipe, sizeof packet.recipe, "%s", says.recipe.c_str());
  const auto declared = ask<shm::TensorDeclaredPacket>(client, packet);
  return declared ? declared->tensor : 0;
}

// A client of which the daemon has said welcome; unusable otherwise.
inline bool enter(HostileClient& client, const std::string& job = "attacker") {
  return client.socket().fd() >= 0 && client.hello(1 << 20, job.c_str());
}

}  // namespace tern::attack
