#pragma once

// Two lanes on the mock, joined by one connection, and time that a test moves.

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "net/tcp/tcp_transport.h"
#include "rdma/rdma_transport.h"
#include "tests/net/transport_conformance.h"
#include "tests/rdma/mock/fabric.h"

namespace tern::rdma {

class TwoEnds {
 public:
  using Adjust = std::function<void(RdmaSettings&)>;

  // A connects, B accepts.
  explicit TwoEnds(mock::Fabric& fabric, const Adjust& adjust_a = {}, const Adjust& adjust_b = {},
                   const char* host = "127.0.0.1")
      : fabric_(fabric), settings_a_(settings(adjust_a)), settings_b_(settings(adjust_b)) {
    auto made = net::TcpAcceptor::create(loop_, clock, {{host, 0}}, accepted);
    EXPECT_TRUE(made);
    acceptor_ = std::move(*made);
  }
  ~TwoEnds() {
    a.reset();
    b.reset();
    accepted.offered.clear();
  }

  // B has been adopted, and has said nothing yet.
  ::testing::AssertionResult connect(std::uint64_t features = 0) {
    a.reset();
    b.reset();
    sink_a = {};
    sink_b = {};
    a = transport_a.connect(acceptor_->endpoint(), sink_a);
    const auto opened = until([&] { return sink_a.opened == 1; });
    if (!opened) return opened;
    wire::HelloBody body;
    body.node = {1, 1};
    body.session = 1;
    body.features = features;
    hello_ = wire::make_hello(wire::FrameKind::hello, body);
    a->send({std::as_bytes(std::span(&hello_, 1)), {}});
    const auto came = until([&] { return accepted.offered.size() == 1; });
    if (!came) return came;
    b = transport_b.adopt(std::move(accepted.offered.front().incoming), sink_b);
    accepted.offered.clear();
    return ::testing::AssertionSuccess();
  }
  // As if A had a device, whatever it has.
  ::testing::AssertionResult connect_saying_rdma() { return connect(wire::kFeatureRdma); }
  ::testing::AssertionResult connect_until(const std::string& carrier) {
    const auto connected = connect();
    if (!connected) return connected;
    return until([&] { return carrier_of(*a) == carrier && carrier_of(*b) == carrier; })
           << a->carriage().note << " / " << b->carriage().note;
  }
  static std::string carrier_of(const net::Connection& connection) {
    return connection.carriage().name;
  }

  int step() { return acceptor_->poll() + transport_a.poll() + transport_b.poll(); }
  ::testing::AssertionResult until(const std::function<bool()>& done) {
    constexpr int kIdleRounds = 20'000;
    for (int idle = 0; idle < kIdleRounds;) {
      if (done()) return ::testing::AssertionSuccess();
      if (step() > 0) continue;
      ++idle;
      // A bounded wait for the sockets of this host; what the mock does needs none.
      if (transport_a.prepare_sleep() && transport_b.prepare_sleep()) loop_.wait(100'000);
    }
    return ::testing::AssertionFailure() << "it does not happen";
  }
  // In seconds; after each of them both ends do what is due.
  void run_for(std::uint64_t seconds) {
    constexpr int kIdleRounds = 30;
    for (std::uint64_t i = 0; i < seconds; ++i) {
      clock.advance_ns(1'000'000'000);
      for (int idle = 0; idle < kIdleRounds; idle += step() == 0 ? 1 : 0) {
        transport_a.prepare_sleep();
        transport_b.prepare_sleep();
        loop_.poll();
      }
      EXPECT_TRUE(until([&] { return !is_settling(a) && !is_settling(b); }));
    }
  }
  // A frame from A to B, whose memory is A's until B has it and A knows.
  ::testing::AssertionResult carry(std::span<const std::byte> frame) {
    const std::size_t had = sink_b.payloads.size();
    a->send({frame.first(wire::kFrameHeaderBytes), frame.subspan(wire::kFrameHeaderBytes)});
    return until([&] { return sink_b.payloads.size() == had + 1 && a->queued_bytes() == 0; });
  }

  // Host memory that A sends from.
  bool remember(std::span<const std::byte> memory) {
    return transport_a.remember_memory({memory, net::MemoryKind::host}).has_value();
  }
  void forget(std::span<const std::byte> memory) {
    transport_a.forget_memory({memory, net::MemoryKind::host});
  }

  static bool is_settling(const std::unique_ptr<net::Connection>& connection) {
    return connection && carrier_of(*connection) == "settling";
  }

  ManualClock clock;
  net::RawSink sink_a, sink_b;
  net::RecordingAcceptorSink accepted;

 private:
  RdmaSettings settings(const Adjust& adjust) const {
    RdmaSettings settings;
    settings.node_directory = fabric_.nodes().string();
    if (adjust) adjust(settings);
    return settings;
  }

  mock::Fabric& fabric_;
  RdmaSettings settings_a_, settings_b_;
  net::EventLoop loop_;
  net::TcpTransport tcp_a_{loop_, {}}, tcp_b_{loop_, {}};
  wire::HelloFrame hello_;
  std::unique_ptr<net::Acceptor> acceptor_;

 public:
  RdmaTransport transport_a{tcp_a_, loop_, clock, settings_a_};
  RdmaTransport transport_b{tcp_b_, loop_, clock, settings_b_};
  std::unique_ptr<net::Connection> a, b;
};

}  // namespace tern::rdma
