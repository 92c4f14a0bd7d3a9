// What a client asks for within its rights, more often than anybody needs.

#include <poll.h>

#include <cstring>
#include <memory>

#include "tests/attack/attack.h"
#include "tests/attack/requests.h"
#include "tests/attack/sockets.h"

namespace tern::attack {
namespace {

void mints(Assault& assault) {
  const auto mint = shm::make_packet<e2e::HeaderOnly>(shm::PacketKind::group_mint, 2);
  HostileClient client(assault.target.socket);
  if (!enter(client)) return;
  while (assault.goes_on()) {
    if (!client.socket().send(shm::packet_bytes(mint))) client.receive();
    if (!client.drain()) return;
  }
}

void declarations(Assault& assault) {
  while (true) {
    HostileClient client(assault.target.socket);
    if (!enter(client)) continue;
    const std::uint64_t group = join_alone(client);
    for (int i = 0; i < 20'000 && group != 0; ++i) {
      assault.goes_on();
      if (declare(client, {group, 16, "tensor" + std::to_string(i), ""}) == 0) break;
    }
  }
}

void recipes(Assault& assault) {
  static constexpr const char* kParts[] = {
      "ef(",  "3lc:s=1",  "topk:", ",",      ")", "0.01",  "scale=", "+",      "huff",
      "auto", "replay:x", "qsgd:", "diana(", "=", "1e308", "-1",     "randk:", "\xff"};
  HostileClient client(assault.target.socket);
  if (!enter(client)) return;
  const std::uint64_t group = join_alone(client);
  while (assault.goes_on()) {
    std::string recipe;
    while (recipe.size() < 50) recipe += kParts[assault.below(std::size(kParts))];
    declare(client,
            {group, 1 + assault.below(4096), "tensor" + std::to_string(assault.blows()), recipe});
  }
}

// Each client sends as many requests as are taken, with codec state of 64 MiB to move.
void state_exports(Assault& assault) {
  constexpr std::uint64_t kElements = 16 << 20;
  HostileClient client(assault.target.socket);
  if (!client.hello(std::uint64_t{160} << 20, "attacker")) return;
  client.take_pages(std::uint64_t{128} << 20);
  const std::uint64_t group = join_alone(client);
  const std::uint64_t tensor = declare(client, {group, kElements, "large", "ef(3lc:s=1)"});
  if (tensor == 0) return;
  auto request = shm::make_packet<shm::TensorStatePacket>(shm::PacketKind::tensor_state, 6);
  request.group = group;
  request.tensor = tensor;
  request.bytes = std::uint64_t{128} << 20;
  request.action = static_cast<std::uint32_t>(shm::StateAction::export_part);
  while (assault.goes_on()) {
    if (client.socket().send(shm::packet_bytes(request))) continue;
    if (!client.receive()) return;
  }
}

// State that outlives its job, for one made-up job after another.
void kept_states(Assault& assault) {
  for (std::uint64_t job = 0; assault.goes_on(); ++job) {
    HostileClient client(assault.target.socket);
    if (!enter(client, ("job" + std::to_string(job)).c_str())) continue;
    client.take_pages(1 << 20);
    const std::uint64_t group = join_alone(client);
    const std::uint64_t tensor = declare(client, {group, 250'000, "tensor", "ef(3lc:s=1)"});
    if (tensor == 0) continue;
    auto entry = HostileClient::good_entry(group, 0);
    entry.tensor = tensor;
    entry.role = 1;
    entry.count = 250'000;
    entry.output_offset = 0;
    client.submit(entry);
    client.completion();
  }
}

void tensor_turnover(Assault& assault) {
  HostileClient client(assault.target.socket);
  if (!enter(client)) return;
  const std::uint64_t group = join_alone(client);
  while (assault.goes_on()) {
    auto release = shm::make_packet<shm::TensorReleasePacket>(shm::PacketKind::tensor_release, 7);
    release.group = group;
    release.tensor = declare(client, {group, std::uint64_t{4} << 20, "tensor", "ef(3lc:s=1)"});
    ask<shm::DonePacket>(client, release);
  }
}

// Regions that are opened, freed while they are opened, left unopened, and left with the client.
void many_regions(Assault& assault) {
  Held<std::unique_ptr<HostileClient>> held(32);
  auto create = shm::make_packet<shm::RegionCreatePacket>(shm::PacketKind::region_create, 5);
  while (true) {
    auto& client = *held.hold(std::make_unique<HostileClient>(assault.target.socket));
    if (!enter(client)) continue;
    for (std::uint32_t number = 1; number <= 200; ++number) {
      assault.goes_on();
      create.bytes = 1 + assault.below(100'000);
      if (!ask<shm::RegionCreatedPacket>(client, create)) break;
      auto of_one = shm::make_packet<shm::RegionPacket>(shm::PacketKind::region_open, 6);
      of_one.region = number;
      const std::uint64_t what = assault.below(4);
      if (what == 0) continue;
      if (!client.socket().send(shm::packet_bytes(of_one))) break;
      of_one.header.kind = static_cast<std::uint16_t>(shm::PacketKind::region_free);
      if (what == 1 && !client.socket().send(shm::packet_bytes(of_one))) break;
      if (!client.receive() || (what == 1 && !client.receive())) break;
    }
  }
}

// Ops that never begin, and all the regions in which their inputs lie are wanted back.
void regions_in_use(Assault& assault) {
  constexpr int kRegions = 16;
  constexpr std::uint64_t kOps = 64;  // of a group, and a few are refused where there is less room
  auto create = shm::make_packet<shm::RegionCreatePacket>(shm::PacketKind::region_create, 5);
  create.bytes = 64 << 10;
  auto of_one = shm::make_packet<shm::RegionPacket>(shm::PacketKind::region_open, 6);
  const auto say = [&of_one](HostileClient& client, shm::PacketKind kind, int region) {
    of_one.header.kind = static_cast<std::uint16_t>(kind);
    of_one.region = static_cast<std::uint32_t>(region);
    return client.socket().send(shm::packet_bytes(of_one));
  };
  while (assault.goes_on()) {
    HostileClient client(assault.target.socket);
    HostileClient other(assault.target.socket);
    if (!enter(client) || !enter(other)) continue;
    const std::uint64_t group = join_two(client, other);
    if (group == 0) continue;
    for (int region = 1; region <= kRegions; ++region) {
      if (!ask<shm::RegionCreatedPacket>(client, create)) break;
      if (!say(client, shm::PacketKind::region_open, region) || !client.receive()) break;
    }
    for (std::uint64_t use = 0; use < kOps; ++use) {
      auto entry = HostileClient::good_entry(group, use);
      entry.input_region = static_cast<std::uint32_t>(1 + use % kRegions);
      client.submit(entry);
    }
    for (int i = 0; i < 20 && assault.goes_on(); ++i) {
      for (int region = 1; region <= kRegions; ++region) {
        say(client, shm::PacketKind::region_free, region);
      }
      ::poll(nullptr, 0, 1);
      client.forget_completions();
      if (!client.drain()) break;
    }
  }
}

// As many as the socket takes: they have no answers that the client would have to read.
void device_reports(Assault& assault) {
  HostileClient client(assault.target.socket);
  if (!enter(client)) return;
  auto report = shm::make_packet<shm::DeviceReportPacket>(shm::PacketKind::device_report, 2);
  while (assault.goes_on()) {
    report.device = static_cast<std::uint32_t>(assault.below(shm::kMaxDevices));
    report.device_bytes = assault.below(shm::kMaxReportedBytes);
    report.pinning_failures = assault.blows();
    if (client.socket().send(shm::packet_bytes(report))) continue;
    pollfd writable{client.socket().fd(), POLLOUT, 0};
    ::poll(&writable, 1, 1000);
    if (!client.drain()) return;
  }
}

constexpr Attack kAttacks[] = {
    {"mints", "group ids that nobody joins push out nobody else's", mints},
    {"declarations", "declaring a tensor takes as long among thousands as alone", declarations},
    {"recipes", "a recipe is read in bounded time, whatever it says", recipes},
    {"state_exports", "moves of codec state take no more than their job's share of a lane",
     state_exports},
    {"kept_states", "state that is kept after its job counts as its user's", kept_states,
     Stage::kept_state},
    {"many_regions", "regions of one user have a bound, opened or not", many_regions},
    {"regions_in_use", "regions that are wanted back wait where no lane looks for them",
     regions_in_use},
    {"device_reports", "reports of devices, each with news, hold up nobody", device_reports},
    {"tensor_turnover", "codec state that comes and goes stops no lane", tensor_turnover},
};

}  // namespace

std::span<const Attack> request_attacks() { return kAttacks; }

}  // namespace tern::attack
