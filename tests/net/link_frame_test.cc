// A frame that has begun and does not end, and one that is not acknowledged, while the peer is
// heard all the time.

#include <gtest/gtest.h>

#include "net/link.h"
#include "net/loopback.h"
#include "tests/net/link_pair.h"

namespace tern::net::link_frame_test {
namespace {

constexpr wire::NodeId kNear{1, 1}, kFar{2, 2};
constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr std::uint64_t kTensor = 7;  // of the frame that drips
constexpr std::uint64_t kPiece = LinkSettings::kFramePieceBytes;

// Passes everything on until it is to drip: then of the next sequenced frame the header alone, and
// nothing that comes behind it. How many bytes have come is the test's to say, and whether the peer
// seems to acknowledge anything.
class DrippingTransport final : public Transport {
 public:
  explicit DrippingTransport(Transport& inner) : inner_(inner) {}

  const char* name() const noexcept override { return "dripping"; }
  std::unique_ptr<Connection> connect(const Endpoint& endpoint, ConnectionSink& sink) override {
    auto connection = std::make_unique<Dripping>(*this, sink);
    connection->inner = inner_.connect(endpoint, *connection);
    return connection;
  }
  std::unique_ptr<Connection> adopt(std::unique_ptr<Incoming> incoming,
                                    ConnectionSink& sink) override {
    return inner_.adopt(std::move(incoming), sink);
  }
  int poll() override { return inner_.poll(); }

  bool drips = false, hides_acks = false;
  std::uint64_t received = 0;

 private:
  struct Dripping final : Connection, ConnectionSink {
    Dripping(DrippingTransport& its_world, ConnectionSink& its_sink)
        : world(its_world), sink(its_sink) {}

    void send(const OutgoingFrame& frame) override { inner->send(frame); }
    std::size_t queued_bytes() const override { return inner->queued_bytes(); }
    std::uint64_t received_bytes() const override { return world.received; }

    void on_open(Connection&) override { sink.on_open(*this); }
    bool on_header(Connection&, const wire::FrameHeader& header, PayloadPlace& place) override {
      if (inside) return true;
      inside = world.drips && header.tensor == kTensor;
      return sink.on_header(*this, seen(header), place);
    }
    void on_frame(Connection&, const wire::FrameHeader& header, const PayloadPlace& place,
                  bool payload_valid) override {
      if (!inside) sink.on_frame(*this, seen(header), place, payload_valid);
    }
    wire::FrameHeader seen(wire::FrameHeader header) const {
      if (world.hides_acks) header.ack_seq = 0;
      return header;
    }
    void on_closed(Connection&, Errc reason, const char* text) override {
      sink.on_closed(*this, reason, text);
    }

    DrippingTransport& world;
    ConnectionSink& sink;
    std::unique_ptr<Connection> inner;
    bool inside = false;
  };

  Transport& inner_;
};

class LinkFrameTest : public ::testing::Test {
 protected:
  LinkFrameTest() {
    accepted.take = [this](std::unique_ptr<Incoming> incoming, const wire::HelloBody& hello) {
      far.offer(incoming, hello);
    };
    settle();
    EXPECT_EQ(near.state(), LinkState::open);
  }
  void settle() {
    for (int work = 1; work != 0;) {
      work = acceptor.poll() + wire_near.poll() + wire_far.poll() + near.tick() + far.tick();
    }
  }
  // A frame of the far end begins to come.
  void begin_frame(std::size_t bytes) {
    dripping.drips = true;
    const auto payload = pattern(bytes, 1);
    far.send_copy(block_header(kTensor), payload);
    settle();
    ASSERT_EQ(sink_near.placed, 1);
  }
  // A second passes, in which so many bytes come.
  void second(std::uint64_t bytes) {
    clock.advance_ns(kSecond);
    dripping.received += bytes;
    near.tick();
  }

  ManualClock clock;
  LoopbackNetwork network;
  const Endpoint at_near{"near", 1}, at_far{"far", 1};
  const LinkSettings settings;
  LoopbackTransport wire_near{network, at_near}, wire_far{network, at_far};
  DrippingTransport dripping{wire_near};
  RecordingSink sink_near, sink_far;
  RecordingAcceptorSink accepted;
  LoopbackAcceptor acceptor{network, clock, {at_far, {}}, accepted};
  Link near{dripping, clock, {settings, {kNear, kFar, 0, at_far, true}}, sink_near};
  Link far{wire_far, clock, {settings, {kFar, kNear, 0, {}, false}}, sink_far};
};

TEST_F(LinkFrameTest, OneThatDripsLosesTheLink) {
  ASSERT_NO_FATAL_FAILURE(begin_frame(1 << 20));
  for (std::uint64_t s = 0; s < settings.frame_timeout_ns / kSecond - 1; ++s) second(1);
  EXPECT_EQ(near.state(), LinkState::open);
  EXPECT_EQ(sink_near.abandoned, 0);
  second(1);
  EXPECT_EQ(near.state(), LinkState::lost);
  EXPECT_EQ(sink_near.lost_reason, Errc::protocol_error);
  EXPECT_EQ(sink_near.breaches, 1);
  EXPECT_EQ(sink_near.abandoned, 1) << "what it filled is free";
}

TEST_F(LinkFrameTest, OneThatIsNotReadDoesNot) {
  ASSERT_NO_FATAL_FAILURE(begin_frame(1 << 20));
  for (std::uint64_t s = 0; s < 2 * settings.frame_timeout_ns / kSecond; ++s) {
    near.hold_reading(true);
    second(1);
  }
  EXPECT_EQ(near.state(), LinkState::open);
}

// The timeout is for each piece: so a large frame may come over a slow network.
TEST_F(LinkFrameTest, OneThatComesSlowlyDoesNot) {
  ASSERT_NO_FATAL_FAILURE(begin_frame(1 << 20));
  const std::uint64_t most = settings.frame_timeout_ns / kSecond;
  for (std::uint64_t s = 0; s < 3 * most; ++s) second(2 * kPiece / most);
  EXPECT_EQ(near.state(), LinkState::open);
}

// What came on the connection before says nothing about the next one.
TEST_F(LinkFrameTest, WithANewConnectionTheTimeBeginsAnew) {
  ASSERT_NO_FATAL_FAILURE(begin_frame(1 << 20));
  const std::uint64_t most = settings.frame_timeout_ns / kSecond;
  for (std::uint64_t s = 0; s < most - 1; ++s) {
    second(1);
    settle();  // the other end hears of this one too
  }
  network.kill(at_far);
  settle();
  ASSERT_EQ(near.state(), LinkState::broken);
  network.revive(at_far);
  for (int attempts = 0; attempts < 10 && near.state() != LinkState::open; ++attempts) {
    clock.advance_ns(settings.retry_ns);
    settle();
  }
  ASSERT_EQ(near.state(), LinkState::open) << sink_near.lost_text << sink_far.lost_text;
  ASSERT_EQ(sink_near.placed, 2) << "the frame comes again";
  for (std::uint64_t s = 0; s < most - 1; ++s) second(1);
  EXPECT_EQ(near.state(), LinkState::open);
  second(1);
  EXPECT_EQ(near.state(), LinkState::lost);
}

TEST_F(LinkFrameTest, OneThatIsNotAcknowledgedLosesTheLinkAndFreesWhatItBorrows) {
  dripping.hides_acks = true;
  const auto body = pattern(100, 1);
  near.send(block_header(kTensor), {}, body, 5);
  settle();
  ASSERT_EQ(sink_far.received.size(), 1u);
  for (std::uint64_t s = 0; s < settings.frame_timeout_ns / kSecond - 1; ++s) second(1);
  EXPECT_EQ(near.state(), LinkState::open);
  EXPECT_TRUE(sink_near.acked.empty());
  second(1);
  EXPECT_EQ(near.state(), LinkState::lost);
  EXPECT_EQ(sink_near.lost_reason, Errc::protocol_error);
  EXPECT_EQ(sink_near.breaches, 1);
  EXPECT_EQ(sink_near.acked, (std::map<std::uint64_t, int>{{5, 1}}));
}

TEST_F(LinkFrameTest, ALargeOneHasMoreTimeToBeAcknowledged) {
  dripping.hides_acks = true;
  const auto body = pattern(3 * kPiece, 1);
  near.send(block_header(kTensor), {}, body, 5);
  settle();
  for (std::uint64_t s = 0; s < 4 * settings.frame_timeout_ns / kSecond - 1; ++s) second(1);
  EXPECT_EQ(near.state(), LinkState::open);
  second(1);
  EXPECT_EQ(near.state(), LinkState::lost);
}

// On a slow network the acknowledgement comes behind all that the peer has queued.
TEST_F(LinkFrameTest, AsLongAsMuchComesAnAcknowledgementMayBeOnItsWayForAnHour) {
  dripping.hides_acks = true;
  const auto body = pattern(100, 1);
  near.send(block_header(kTensor), {}, body, 5);
  settle();
  const std::uint64_t most = 61 * settings.frame_timeout_ns / kSecond;
  for (std::uint64_t s = 0; s < most - 1; ++s) second(kPiece / 30);
  EXPECT_EQ(near.state(), LinkState::open);
  second(kPiece / 30);
  EXPECT_EQ(near.state(), LinkState::lost);
}

TEST_F(LinkFrameTest, WhatIsAcknowledgedBeginsTheTimeOfTheNext) {
  const auto body = pattern(100, 1);
  for (int frame = 0; frame < 3; ++frame) {
    dripping.hides_acks = true;
    near.send(block_header(kTensor), {}, body, 5);
    settle();
    for (std::uint64_t s = 0; s < settings.frame_timeout_ns / kSecond - 1; ++s) second(1);
    dripping.hides_acks = false;
    far.send_copy(block_header(kTensor + 1), body);
    settle();
    ASSERT_EQ(near.unacked_frames(), 0u);
  }
  EXPECT_EQ(near.state(), LinkState::open);
}

TEST_F(LinkFrameTest, BetweenFramesThereIsNoTimeout) {
  for (std::uint64_t s = 0; s < 2 * settings.frame_timeout_ns / kSecond; ++s) second(1);
  EXPECT_EQ(near.state(), LinkState::open);
}

}  // namespace
}  // namespace tern::net::link_frame_test
