// Connections of each kind that come and go: after many the daemon has what it had after a few.

#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
#include <iostream>
#include <memory>
#include <string>

#include "tests/attack/requests.h"
#include "tests/attack/sockets.h"
#include "tests/attack/trial.h"
#include "tests/e2e/hostile_peer.h"
#include "tests/environment.h"

namespace tern::attack {
namespace {

constexpr std::int64_t kMiB = 1 << 20;
constexpr std::uint64_t kFew = 1000;

std::uint64_t many() {
  const bool at_length = std::getenv("TERN_TESTS_AT_LENGTH") != nullptr;
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
};
void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

class Cycles : public ::testing::TestWithParam<Kind> {};

TEST_P(Cycles, LeaveNothingBehind) {
  e2e::Cluster cluster(1, {"--metrics-listen", "127.0.0.1:0", "--resume-timeout", "0s"});
  ASSERT_TRUE(cluster.running());
  e2e::DaemonProcess& daemon = cluster[0];
  Target at{daemon.socket(), daemon.control_socket(), daemon.port(), 0, ""};
  const std::string metrics = daemon.ask("status").value("metrics", "");
  at.metrics_port = std::stoi(metrics.substr(metrics.rfind(':') + 1));
  // What has just come may still be among them.
  std::size_t descriptors = burden_of(daemon.pid()).descriptors;
  const auto turn = [&](std::uint64_t cycles) {
    for (std::uint64_t i = 0; i < cycles; ++i) GetParam().cycle(at);
    EXPECT_TRUE(e2e::eventually([&] { return burden_of(daemon.pid()).descriptors <= descriptors; }))
        << burden_of(daemon.pid()).descriptors << " descriptors, before " << descriptors;
    descriptors = burden_of(daemon.pid()).descriptors;
    return burden_of(daemon.pid()).anonymous_bytes;
  };
  const std::int64_t after_few = turn(kFew);
  const std::int64_t after_many = turn(many());
  std::cout << "memory after " << kFew << " and " << kFew + many() << ": " << after_few / 1024
            << " and " << after_many / 1024 << " KiB\n";
  EXPECT_LE(after_many, after_few + kMiB);
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, Cycles,
    ::testing::Values(Kind{"SilentClient", silent_client}, Kind{"Client", client},
                      Kind{"ClientWithoutGoodbye", client_without_goodbye},
                      Kind{"SilentControl", silent_control}, Kind{"Control", control},
                      Kind{"SilentPeer", silent_peer}, Kind{"Peer", peer},
                      Kind{"SilentMetrics", silent_metrics}, Kind{"Metrics", metrics}),
    [](const auto& kind) { return std::string(kind.param.name); });

}  // namespace
}  // namespace tern::attack
