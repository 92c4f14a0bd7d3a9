// Splits of groups, which make groups without an id.

#include <vector>

#include "tests/attack/attack.h"
#include "tests/attack/requests.h"

namespace tern::attack {
namespace {

shm::GroupSplitPacket split_packet(std::uint64_t group, std::int32_t color,
                                   std::int64_t timeout_ms) {
  auto packet = shm::make_packet<shm::GroupSplitPacket>(shm::PacketKind::group_split, 6);
  packet.group = group;
  packet.color = color;
  packet.timeout_ms = timeout_ms;
  return packet;
}

// Children are kept until no more are given, and some go then.
void split_storm(Assault& assault) {
  while (true) {
    HostileClient client(assault.target.socket);
    if (!enter(client)) continue;
    const std::uint64_t parent = join_alone(client);
    std::vector<std::uint64_t> children;
    while (parent != 0 && assault.goes_on()) {
      const auto color = static_cast<std::int32_t>(assault.below(5)) - 1;
      const auto child =
          ask<shm::GroupSplitReplyPacket>(client, split_packet(parent, color, 20'000));
      if (child && child->group != 0) children.push_back(child->group);
      if (child && assault.below(8) != 0) continue;
      for (const std::uint64_t one : children) leave(client, one);
      children.clear();
      if (!child && !client.drain()) break;
    }
  }
}

// The other rank never splits; time and again the time runs out.
void lonely_splits(Assault& assault) {
  HostileClient splits(assault.target.socket);
  HostileClient other(assault.target.socket);
  if (!enter(splits) || !enter(other)) return;
  const std::uint64_t group = join_two(splits, other);
  while (group != 0 && assault.goes_on()) {
    const auto request = split_packet(group, static_cast<std::int32_t>(assault.random()), 1);
    if (!splits.socket().send(shm::packet_bytes(request)) && !splits.receive()) return;
    if (!splits.drain()) return;
  }
}

constexpr Attack kAttacks[] = {
    {"split_storm", "splits without end take no group and no link of others", split_storm},
    {"lonely_splits", "a split that not all ranks join waits alone", lonely_splits},
};

}  // namespace

std::span<const Attack> split_attacks() { return kAttacks; }

}  // namespace tern::attack
