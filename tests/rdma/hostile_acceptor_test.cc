// A peer without manners at the other end of the set-up: the side under test connects, and the one
// that accepts makes its offers by hand.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/rdma/two_ends.h"

namespace tern::rdma {
namespace {

using ::testing::HasSubstr;

class HostileAcceptor : public ::testing::Test {
 protected:
  void SetUp() override {
    auto made = net::TcpAcceptor::create(loop_, clock_, {{"127.0.0.1", 0}}, accepted_);
    ASSERT_TRUE(made);
    acceptor_ = std::move(*made);
    RdmaSettings settings;
    settings.node_directory = fabric_.nodes().string();
    victim_transport_.emplace(victim_tcp_, loop_, clock_, settings);
    victim_ = victim_transport_->connect(acceptor_->endpoint(), sink_);
    ASSERT_TRUE(until([&] { return sink_.opened == 1; }));
    wire::HelloBody body;
    body.node = {1, 1};
    body.session = 1;
    hello_ = wire::make_hello(wire::FrameKind::hello, body);
    victim_->send({std::as_bytes(std::span(&hello_, 1)), {}});
    ASSERT_TRUE(until([&] { return accepted_.offered.size() == 1; }));
    EXPECT_NE(accepted_.offered.front().hello.features & wire::kFeatureRdma, 0u);
    hostile_ = tcp_.adopt(std::move(accepted_.offered.front().incoming), hostile_sink_);
    accepted_.offered.clear();
  }
  void TearDown() override {
    victim_.reset();
    hostile_.reset();
    victim_transport_.reset();
  }

  bool until(const std::function<bool()>& done) {
    for (int i = 0; i < 20'000; ++i) {
      if (done()) return true;
      const int work = acceptor_->poll() + tcp_.poll() + victim_transport_->poll();
      if (work == 0 && victim_transport_->prepare_sleep()) loop_.wait(100'000);
    }
    return done();
  }
  // As good as the device's own.
  static wire::RdmaBody good_body() {
    wire::RdmaBody body;
    body.gid_type = static_cast<std::uint8_t>(wire::GidType::roce_v2);
    body.mtu = IBV_MTU_4096;
    body.qp_number = 0x123;
    body.gid = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1};
    body.receive_slots = 16;
    body.slot_bytes = 65536;
    return body;
  }
  // Frames are borrowed until they have left.
  void send(wire::FrameKind kind, const wire::RdmaBody& body = good_body()) {
    frames_.push_back(std::make_unique<wire::RdmaFrame>(wire::make_rdma(kind, body)));
    hostile_->send({std::as_bytes(std::span(frames_.back().get(), 1)), {}});
  }
  void send_ready() {
    ready_ = wire::make_rdma_ready();
    hostile_->send({std::as_bytes(std::span(&ready_, 1)), {}});
  }
  int answers(wire::FrameKind kind) const {
    return static_cast<int>(std::count_if(
        hostile_sink_.headers.begin(), hostile_sink_.headers.end(),
        [&](const auto& one) { return one.kind == static_cast<std::uint8_t>(kind); }));
  }
  void expect_closed(const char* text) {
    ASSERT_TRUE(until([&] { return sink_.closed == 1; }));
    EXPECT_EQ(sink_.closed_reason, Errc::protocol_error);
    EXPECT_THAT(sink_.closed_text, HasSubstr(text));
  }

  mock::Fabric fabric_;
  ManualClock clock_;
  net::EventLoop loop_;
  net::TcpTransport tcp_{loop_, {}}, victim_tcp_{loop_, {}};
  std::optional<RdmaTransport> victim_transport_;
  net::RecordingAcceptorSink accepted_;
  std::unique_ptr<net::Acceptor> acceptor_;
  net::RawSink sink_, hostile_sink_;
  wire::HelloFrame hello_;
  wire::FrameHeader ready_;
  std::vector<std::unique_ptr<wire::RdmaFrame>> frames_;
  std::unique_ptr<net::Connection> victim_, hostile_;
};

TEST_F(HostileAcceptor, AbsurdLimitsCloseTheConnection) {
  wire::RdmaBody body = good_body();
  body.slot_bytes = 0xffffffff;
  send(wire::FrameKind::rdma_offer, body);
  expect_closed("absurd limits");
  EXPECT_EQ(fabric_.calls.queue_pairs, 0u);
}

TEST_F(HostileAcceptor, AForeignVersionClosesTheConnection) {
  wire::RdmaBody body = good_body();
  body.version = 7;
  send(wire::FrameKind::rdma_offer, body);
  expect_closed("another version of RDMA");
}

TEST_F(HostileAcceptor, AnAcceptOfWhatWasNeverOfferedClosesTheConnection) {
  send(wire::FrameKind::rdma_accept);
  expect_closed("order of the RDMA set-up");
}

TEST_F(HostileAcceptor, ReadyWithoutAnOfferClosesTheConnection) {
  send_ready();
  expect_closed("order of the RDMA set-up");
}

TEST_F(HostileAcceptor, ASecondOfferClosesTheConnection) {
  send(wire::FrameKind::rdma_offer);
  ASSERT_TRUE(until([&] { return answers(wire::FrameKind::rdma_accept) == 1; }));
  send(wire::FrameKind::rdma_offer);
  expect_closed("order of the RDMA set-up");
}

// It has no queue pair at all: what leaves for it is lost, and the link goes on without RDMA.
TEST_F(HostileAcceptor, ReadyWithoutAQueuePairFailsOver) {
  send(wire::FrameKind::rdma_offer);
  ASSERT_TRUE(until([&] { return answers(wire::FrameKind::rdma_accept) == 1; }));
  send_ready();
  ASSERT_TRUE(until([&] { return std::string(victim_->carriage().name) == "rdma"; }));
  const auto frame = net::sealed(net::block_header(1), net::pattern(100, 1));
  victim_->send({frame, {}});
  ASSERT_TRUE(until([&] { return sink_.closed == 1; }));
  EXPECT_THAT(sink_.closed_text, HasSubstr("RDMA failed"));
}

TEST_F(HostileAcceptor, AFrameWhileTheVictimWaitsForReadyClosesTheConnection) {
  send(wire::FrameKind::rdma_offer);
  ASSERT_TRUE(until([&] { return answers(wire::FrameKind::rdma_accept) == 1; }));
  const auto frame = net::sealed(net::block_header(1), net::pattern(100, 1));
  hostile_->send({frame, {}});
  ASSERT_TRUE(until([&] { return sink_.closed == 1; }));
  EXPECT_TRUE(sink_.payloads.empty());
}

// Each offer makes a queue pair and registers its memory: no more than a peer in need would ask.
TEST_F(HostileAcceptor, OffersInARowAreDeclined) {
  wire::RdmaDeclineFrame decline = wire::make_rdma_decline(Errc::unsupported, "not yet");
  constexpr int kOffers = 50;
  for (int i = 1; i <= kOffers; ++i) {
    send(wire::FrameKind::rdma_offer);
    ASSERT_TRUE(until([&] {
      return answers(wire::FrameKind::rdma_accept) + answers(wire::FrameKind::rdma_decline) == i;
    }));
    if (answers(wire::FrameKind::rdma_decline) > 0) continue;
    hostile_->send({std::as_bytes(std::span(&decline, 1)), {}});
  }
  EXPECT_EQ(answers(wire::FrameKind::rdma_decline), kOffers - 1);
  EXPECT_EQ(fabric_.calls.queue_pairs, 1u);
  EXPECT_EQ(sink_.closed, 0);
}

}  // namespace
}  // namespace tern::rdma
