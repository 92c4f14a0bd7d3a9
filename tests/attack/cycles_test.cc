// Connections of each kind that come and go: after many the daemon has what it had after a few.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "pki/authority.h"
#include "tests/attack/requests.h"
#include "tests/attack/secure_peers.h"
#include "tests/attack/sockets.h"
#include "tests/attack/trial.h"
#include "tests/e2e/hostile_member.h"
#include "tests/e2e/hostile_peer.h"
#include "tests/environment.h"

namespace tern::attack {
namespace {

constexpr std::int64_t kMiB = 1 << 20;
constexpr std::uint64_t kFew = 1000;
constexpr int kTurns = 5;

// Under a sanitizer 100,000 of one kind take half an hour, and show the sanitizer's memory.
std::uint64_t many() {
#if defined(TERN_SANITIZES)
  constexpr bool kMayBeLong = false;
#else
  constexpr bool kMayBeLong = true;
#endif
  const bool at_length = kMayBeLong && std::getenv("TERN_TESTS_AT_LENGTH") != nullptr;
  return tests::number_of("TERN_CYCLES", at_length ? 100'000 : 10'000);
}

void silent_client(const Target& at) { connect_local(at.socket, SOCK_SEQPACKET); }

void client(const Target& at) {
  EXPECT_TRUE(e2e::eventually([&] {
    HostileClient client(at.socket);
    return enter(client) && ask<shm::DonePacket>(client, shm::make_packet<e2e::HeaderOnly>(
                                                             shm::PacketKind::goodbye, 9));
  }));
}

void client_in_a_group(const Target& at) {
  EXPECT_TRUE(e2e::eventually([&] {
    HostileClient client(at.socket);
    if (!enter(client)) return false;
    const std::uint64_t group = join_alone(client);
    return group != 0 && leave(client, group);
  }));
}

// Of each there are a parent and a child, which end with their only rank.
void client_that_dies_in_a_child(const Target& at) {
  EXPECT_TRUE(e2e::eventually([&] {
    HostileClient client(at.socket);
    if (!enter(client)) return false;
    auto split = shm::make_packet<shm::GroupSplitPacket>(shm::PacketKind::group_split, 6);
    split.group = join_alone(client);
    split.timeout_ms = 20'000;
    return ask<shm::GroupSplitReplyPacket>(client, split).has_value();
  }));
}

// It has a region that is open, and one that is not.
void client_with_regions(const Target& at) {
  EXPECT_TRUE(e2e::eventually([&] {
    HostileClient client(at.socket);
    if (!enter(client)) return false;
    auto create = shm::make_packet<shm::RegionCreatePacket>(shm::PacketKind::region_create, 11);
    create.bytes = 4096;
    for (int i = 0; i < 2; ++i, ++create.header.request) {
      if (!ask<shm::RegionCreatedPacket>(client, create)) return false;
    }
    auto open = shm::make_packet<shm::RegionPacket>(shm::PacketKind::region_open, 13);
    open.region = 1;
    return ask<shm::DonePacket>(client, open).has_value();
  }));
}

// That of who dies, as it looks from here.
void client_without_goodbye(const Target& at) {
  EXPECT_TRUE(e2e::eventually([&] {
    HostileClient client(at.socket);
    return enter(client);
  }));
}

void control(const Target& at) {
  EXPECT_TRUE(e2e::eventually([&] {
    const Fd socket = connect_local(at.control_socket);
    return push(socket, "{\"v\":1,\"id\":1,\"verb\":\"version\"}\n") && await_bytes(socket);
  }));
}

void silent_control(const Target& at) { connect_local(at.control_socket); }

void silent_peer(const Target& at) { connect_port(at.port); }

void peer(const Target& at) {
  static std::uint64_t node = 0;
  EXPECT_TRUE(e2e::eventually([&] {
    e2e::HostilePeer peer(at.port);
    if (!peer.hello(e2e::HostilePeer::hello_body(wire::kConductorLane, ++node))) return false;
    wire::FrameHeader goodbye;
    goodbye.kind = static_cast<std::uint8_t>(wire::FrameKind::goodbye);
    return peer.send(e2e::HostilePeer::frame(goodbye, {}));
  }));
}

// Of a lane, and no group.
void lane_peer(const Target& at) {
  static std::uint64_t node = 0;
  EXPECT_TRUE(e2e::eventually([&] {
    e2e::HostilePeer peer(at.port);
    auto hello = e2e::HostilePeer::hello_body(0, ++node);
    hello.group = node;
    if (!peer.hello(hello)) return false;
    wire::FrameHeader goodbye;
    goodbye.kind = static_cast<std::uint8_t>(wire::FrameKind::goodbye);
    return peer.send(e2e::HostilePeer::frame(goodbye, {}));
  }));
}

// A daemon that joins a group of a client of this one, and is gone.
void member(const Target& at) {
  static std::uint64_t node = 0;
  EXPECT_TRUE(e2e::eventually([&] {
    HostileClient client(at.socket);
    if (!enter(client)) return false;
    const std::string id = mint(client);
    if (!client.socket().send(shm::packet_bytes(join_packet(id, 0, 2)))) return false;
    e2e::HostileMember other;
    return other.join(id, ++node, 1, 2).empty();
  }));
}

void secure_peer(const Target& at) {
  static std::uint64_t node = 0;
  EXPECT_TRUE(e2e::eventually([&] { return say_hello_with_key(at.port, at.key, ++node); }));
}

// Half a hand-shake.
void half_secure_peer(const Target& at) {
  push(connect_port(at.port), std::string_view("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11));
}

void metrics(const Target& at) {
  const Fd socket = connect_port(at.metrics_port);
  EXPECT_TRUE(push(socket, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"));
  while (await_bytes(socket)) {
  }
}

void silent_metrics(const Target& at) { connect_port(at.metrics_port); }

struct Kind {
  const char* name;
  void (*cycle)(const Target&);
  bool secure = false;  // the peers' port is behind a cluster key
};
void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

class Cycles : public ::testing::TestWithParam<Kind> {
 protected:
  // What the address sanitizer keeps of freed memory, to find uses of it, looks like a leak.
  static void SetUpTestSuite() {
    const char* const options = std::getenv("ASAN_OPTIONS");
    const std::string before = options != nullptr ? std::string(options) + ":" : std::string();
    ::setenv("ASAN_OPTIONS",
             (before + "quarantine_size_mb=1:thread_local_quarantine_size_kb=64").c_str(), 1);
  }
};

TEST_P(Cycles, LeaveNothingBehind) {
  std::vector<std::string> options{"--metrics-listen", "127.0.0.1:0", "--resume-timeout", "0s"};
  const e2e::TemporaryFolder keys;
  const std::string key_file = keys.path() + "/cluster.key";
  std::string key;
  if (GetParam().secure) {
    ASSERT_TRUE(pki::make_cluster_key(key_file).has_value());
    std::ifstream file(key_file);
    std::getline(file, key);
    options.insert(options.end(), {"--peer-security", "key", "--cluster-key-file", key_file});
  }
  e2e::Cluster cluster(1, options);
  ASSERT_TRUE(cluster.running());
  e2e::DaemonProcess& daemon = cluster[0];
  Target at{daemon.socket(), daemon.control_socket(), daemon.port(), 0, key};
  const std::string metrics = daemon.ask("status").value("metrics", "");
  at.metrics_port = std::stoi(metrics.substr(metrics.rfind(':') + 1));
  // What has just come may still be among them.
  std::size_t descriptors = burden_of(daemon.pid()).descriptors;
  const auto turn = [&](std::uint64_t cycles) {
    for (std::uint64_t i = 0; i < cycles; ++i) GetParam().cycle(at);
    EXPECT_TRUE(e2e::eventually([&] { return burden_of(daemon.pid()).descriptors <= descriptors; }))
        << burden_of(daemon.pid()).descriptors << " descriptors, before " << descriptors << ": "
        << e2e::descriptors_text(daemon.pid()) << "peers: " << daemon.ask("peers").dump();
    descriptors = burden_of(daemon.pid()).descriptors;
    return burden_of(daemon.pid()).anonymous_bytes;
  };
  // What is left behind grows with every turn. What the allocator keeps of the most that was there at
  // a time does not: it depends on how many closes were waited for at once.
  std::int64_t before = turn(kFew);
  for (int i = 0; i < kTurns; ++i) {
    const std::int64_t after = turn(many());
    std::cout << "memory before and after " << many() << " cycles: " << before / 1024 << " and "
              << after / 1024 << " KiB\n";
    if (after <= before + kMiB) return;
    before = after;
  }
  ADD_FAILURE() << "more than a MiB was left by each of " << kTurns << " turns";
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, Cycles,
    ::testing::Values(Kind{"SilentClient", silent_client}, Kind{"Client", client},
                      Kind{"ClientWithoutGoodbye", client_without_goodbye},
                      Kind{"ClientInAGroup", client_in_a_group},
                      Kind{"ClientWithRegions", client_with_regions},
                      Kind{"ClientThatDiesInAChild", client_that_dies_in_a_child},
                      Kind{"SilentControl", silent_control}, Kind{"Control", control},
                      Kind{"SilentPeer", silent_peer}, Kind{"Peer", peer},
                      Kind{"LanePeer", lane_peer}, Kind{"Member", member},
                      Kind{"HalfSecurePeer", half_secure_peer, true},
                      Kind{"SecurePeer", secure_peer, true}, Kind{"SilentMetrics", silent_metrics},
                      Kind{"Metrics", metrics}),
    [](const auto& kind) { return std::string(kind.param.name); });

}  // namespace
}  // namespace tern::attack
