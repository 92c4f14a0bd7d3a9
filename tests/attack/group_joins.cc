// Groups that are joined to fail, or to wait for ever.

#include "tests/attack/attack.h"
#include "tests/attack/requests.h"
#include "tests/attack/sockets.h"

namespace tern::attack {
namespace {

std::string hex(Assault& assault, std::size_t digits) {
  std::string text;
  while (text.size() < digits) text += "0123456789abcdef"[assault.below(16)];
  return text;
}

std::string made_up_id(Assault& assault, const std::string& address) {
  return "tern1:" + address + ":" + hex(assault, 32) + ":" + hex(assault, 64);
}

// Joins as fast as they are taken, each of an id of its own, and never reads an answer in vain.
template <typename Address>
void join_many(Assault& assault, Address address) {
  while (true) {
    HostileClient client(assault.target.socket);
    if (!enter(client)) continue;
    while (assault.goes_on()) {
      auto join = join_packet(made_up_id(assault, address()), 1, 2);
      join.timeout_ms = 3'600'000;
      if (!client.socket().send(shm::packet_bytes(join)) && !client.receive()) break;
      if (!client.drain()) break;
    }
  }
}

void unknown_groups(Assault& assault) {
  join_many(assault, [&] { return "127.0.0.1:" + std::to_string(assault.target.port); });
}

// Coordinators that take a connection and never say a word.
void stalled_coordinators(Assault& assault) {
  const Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ::listen(listener.get(), 128);
  sockaddr_in at{};
  socklen_t bytes = sizeof at;
  void* const generic = &at;
  ::getsockname(listener.get(), static_cast<sockaddr*>(generic), &bytes);
  const std::string port = std::to_string(ntohs(at.sin_port));
  join_many(assault,
            [&] { return "127.0.0." + std::to_string(1 + assault.below(250)) + ":" + port; });
}

void nowhere(Assault& assault) {
  join_many(assault, [&] { return "127.0.0.1:" + std::to_string(1 + assault.below(60'000)); });
}

void slow_names(Assault& assault) {
  join_many(assault, [&] { return "node" + std::to_string(assault.random()) + ".invalid:7700"; });
}

// Each leaves a flight record: one rank is lost while the other has an op in flight.
void failing_groups(Assault& assault) {
  while (assault.goes_on()) {
    HostileClient stays(assault.target.socket);
    HostileClient goes(assault.target.socket);
    if (!enter(stays) || !enter(goes)) continue;
    const std::uint64_t group = join_two(stays, goes);
    if (group == 0) continue;
    stays.submit(HostileClient::good_entry(group, 0));
    goes.socket().close();
    stays.completion(std::chrono::seconds(1));
  }
}

// Joins whose time is over when they arrive.
void late_joins(Assault& assault) {
  HostileClient client(assault.target.socket);
  if (!enter(client)) return;
  const std::string id = mint(client);
  while (assault.goes_on()) {
    auto join = join_packet(id, 0, 2);
    join.timeout_ms = 1;
    if (!client.socket().send(shm::packet_bytes(join)) && !client.receive()) return;
    if (!client.drain()) return;
  }
}

void groups_of_one(Assault& assault) {
  while (true) {
    HostileClient client(assault.target.socket);
    if (!enter(client)) continue;
    while (assault.goes_on()) {
      const std::uint64_t group = join_alone(client);
      if (group == 0 || !leave(client, group)) break;
    }
  }
}

constexpr Attack kAttacks[] = {
    {"unknown_groups", "joins of groups that nobody minted take no other's place", unknown_groups},
    {"stalled_coordinators", "who waits for a silent coordinator waits alone",
     stalled_coordinators},
    {"nowhere", "joins where nobody listens cost others nothing", nowhere},
    {"slow_names", "looking up one user's names keeps nobody else's waiting", slow_names},
    {"failing_groups", "a user's failures leave a bounded number of records", failing_groups},
    {"failing_groups_on_a_full_disk", "a disk without room stops no job", failing_groups,
     Stage::full_disk},
    {"late_joins", "joins that are given up leave nothing behind", late_joins},
    {"groups_of_one", "groups that come and go stop no lane", groups_of_one},
};

}  // namespace

std::span<const Attack> group_attacks() { return kAttacks; }

}  // namespace tern::attack
