#pragma once

// Two links over RDMA that have something to do all the time, on two lanes of one thread, for what
// counts the cost of a frame.

#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "net/link.h"
#include "net/tcp/tcp_transport.h"
#include "rdma/rdma_transport.h"
#include "tests/net/link_pair.h"
#include "tests/rdma/mock/fabric.h"

namespace tern::rdma {

inline constexpr std::size_t kBody = 256 << 10;

// Takes frames into one place.
class PlaceSink final : public net::LinkSink {
 public:
  net::PayloadPlace place_payload(net::Link&, const wire::FrameHeader& header) override {
    return {{}, std::span(memory_).first(header.payload_bytes)};
  }
  bool on_frame(net::Link&, const wire::FrameHeader&, const net::PayloadPlace&,
                bool valid) override {
    received += valid ? 1 : 0;
    return true;
  }
  void on_abandoned(net::Link&, const wire::FrameHeader&, const net::PayloadPlace&) override {}
  void on_acked(net::Link&, std::uint64_t) override { ++acked; }
  void on_lost(net::Link&, Errc, const char*) override { is_lost = true; }

  std::uint64_t received = 0, acked = 0;
  bool is_lost = false;

 private:
  std::vector<std::byte> memory_ = std::vector<std::byte>(kBody + 4096);
};

class BusyLinks {
 public:
  explicit BusyLinks(bool payload_crc = true) : payload_crc_(payload_crc) {
    auto made = net::TcpAcceptor::create(loop_, clock_, {{"127.0.0.1", 0}}, accepted_);
    if (!made) return;
    acceptor_ = std::move(*made);
    accepted_.take = [this](std::unique_ptr<net::Incoming> incoming, const wire::HelloBody& hello) {
      b_.offer(incoming, hello);
    };
    a_ = std::make_unique<net::Link>(
        transport_a_, clock_,
        net::Link::Setup{{}, {{1, 1}, {2, 2}, 0, acceptor_->endpoint(), true}}, sink_a);
    EXPECT_TRUE(transport_a_.remember_memory({payload_, net::MemoryKind::host}));
    for (int i = 0; i < 20'000 && !is_open(); ++i) {
      clock_.advance_ns(10'000);
      acceptor_->poll();
      if (round() == 0) loop_.wait(100'000);
    }
  }
  bool is_open() const {
    return a_->state() == net::LinkState::open && b_.state() == net::LinkState::open &&
           std::strcmp(a_->carriage().name, "rdma") == 0;
  }
  int round() { return transport_a_.poll() + transport_b_.poll() + a_->tick() + b_.tick(); }
  // Large frames one way and small ones back, and nothing else: time stands still.
  void exchange(std::uint64_t frames) {
    for (std::uint64_t i = 0; i < frames; ++i) {
      wire::FrameHeader header;
      header.kind = static_cast<std::uint8_t>(wire::FrameKind::contribution);
      a_->send(header, {}, payload_, i + 1);
      header.kind = static_cast<std::uint8_t>(wire::FrameKind::grant);
      b_.send_copy(header, std::span(payload_).first(100));
      for (int j = 0; j < 1000 && a_->unacked_bytes() > 8 * kBody; ++j) round();
    }
    // Acknowledgements of the last ones wait for a timer.
    for (int j = 0; j < 1000; ++j) round();
  }

  PlaceSink sink_a, sink_b;

 private:
  RdmaSettings settings() const {
    RdmaSettings settings;
    settings.node_directory = fabric_.nodes().string();
    settings.payload_crc = payload_crc_;
    return settings;
  }

  bool payload_crc_;
  mock::Fabric fabric_;
  ManualClock clock_;
  net::EventLoop loop_;
  net::TcpTransport tcp_a_{loop_, {}}, tcp_b_{loop_, {}};
  RdmaTransport transport_a_{tcp_a_, loop_, clock_, settings()};
  RdmaTransport transport_b_{tcp_b_, loop_, clock_, settings()};
  net::RecordingAcceptorSink accepted_;
  std::unique_ptr<net::Acceptor> acceptor_;
  std::vector<std::byte> payload_ = std::vector<std::byte>(kBody, std::byte{1});
  net::Link b_{transport_b_, clock_, {{}, {{2, 2}, {1, 1}, 0, {}, false}}, sink_b};
  std::unique_ptr<net::Link> a_;
};

}  // namespace tern::rdma
