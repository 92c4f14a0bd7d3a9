#include "rdma/control_channel.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "wire/frame.h"

namespace tern::rdma {
namespace control_channel_test {
namespace {

// Takes bytes only when it is told to.
class SlowConnection final : public net::Connection {
 public:
  void send(const net::OutgoingFrame& frame) override {
    for (const auto part : {frame.head, frame.body}) {
      sent.insert(sent.end(), part.begin(), part.end());
      queued += part.size();
    }
    heads.push_back(frame.head.data());
  }
  std::size_t queued_bytes() const override { return queued; }
  std::uint64_t received_bytes() const override { return 77; }
  void take(std::size_t bytes) { queued -= bytes; }

  std::vector<std::byte> sent;
  std::vector<const std::byte*> heads;
  std::size_t queued = 0;
};

class ControlChannelTest : public ::testing::Test {
 protected:
  ControlChannelTest() {
    auto made = std::make_unique<SlowConnection>();
    slow = made.get();
    channel.open(std::move(made));
  }
  void pass(std::size_t bytes) {
    user.resize(bytes);
    channel.pass({std::span(user).first(bytes / 2), std::span(user).subspan(bytes / 2)});
  }

  ControlChannel channel;
  SlowConnection* slow = nullptr;
  std::vector<std::byte> user;
};

TEST_F(ControlChannelTest, CountsTheUsersBytesUntilTheyHaveLeft) {
  pass(1000);
  EXPECT_EQ(channel.user_bytes(), 1000u);
  slow->take(400);
  EXPECT_EQ(channel.user_bytes(), 600u);
  EXPECT_EQ(channel.received_bytes(), 77u);
  channel.close();
  EXPECT_EQ(channel.user_bytes(), 0u);
  EXPECT_EQ(channel.received_bytes(), 0u);
}

TEST_F(ControlChannelTest, OurOwnFramesAreNotTheUsers) {
  pass(1000);
  channel.send_decline(Errc::unsupported, "no");
  EXPECT_EQ(channel.user_bytes(), 1000u);
  slow->take(1000 + 10);
  EXPECT_EQ(channel.user_bytes(), 0u) << "the rest of the decline waits, and is ours";
  EXPECT_TRUE(channel.has_own_waiting());
  slow->take(sizeof(wire::RdmaDeclineFrame) - 10);
  EXPECT_FALSE(channel.has_own_waiting());
  EXPECT_FALSE(channel.has_waiting());
}

TEST_F(ControlChannelTest, OwnFramesOfLongAgoDoNotCountAnyMore) {
  channel.send_ready();
  slow->take(sizeof(wire::FrameHeader));
  pass(1000);
  channel.send_ready();
  EXPECT_EQ(channel.user_bytes(), 1000u);
  slow->take(1000);
  EXPECT_EQ(channel.user_bytes(), 0u);
  EXPECT_TRUE(channel.has_own_waiting());
}

TEST_F(ControlChannelTest, OfferAndReadyMayWaitTogether) {
  channel.send_set_up(wire::FrameKind::rdma_offer, {});
  channel.send_ready();
  EXPECT_EQ(channel.user_bytes(), 0u);
  EXPECT_EQ(slow->queued, sizeof(wire::RdmaFrame) + sizeof(wire::FrameHeader));
  EXPECT_NE(slow->heads[0], slow->heads[1]) << "each is borrowed until it has left";
}

TEST_F(ControlChannelTest, AHelloThatAsksIsTheUsersWithOneBitMore) {
  wire::HelloBody body;
  body.node = {1, 2};
  body.session = 3;
  body.features = wire::kFeatureSubmitted;
  channel.pass_hello_that_asks(body);
  EXPECT_EQ(channel.user_bytes(), sizeof(wire::HelloFrame));
  EXPECT_FALSE(channel.has_own_waiting());
  const wire::ParsedFrame frame = wire::parse_frame_header(slow->sent);
  ASSERT_EQ(frame.error, wire::ParseError::none);
  const wire::ParsedHello hello =
      wire::parse_hello(frame.header, std::span(slow->sent).subspan(wire::kFrameHeaderBytes));
  ASSERT_EQ(hello.error, wire::HelloError::none);
  EXPECT_EQ(hello.body.features, wire::kFeatureSubmitted | wire::kFeatureRdma);
  EXPECT_EQ(hello.body.session, 3u);
}

TEST_F(ControlChannelTest, PlacesOnlyPayloadsOfTheirKindsSize) {
  const auto fits = [&](wire::FrameKind kind, std::uint32_t bytes) {
    wire::FrameHeader header;
    header.kind = static_cast<std::uint8_t>(kind);
    header.payload_bytes = bytes;
    net::PayloadPlace place;
    const bool accepted = channel.place(header, place);
    EXPECT_EQ(place.body.size(), accepted ? bytes : 0);
    return accepted;
  };
  EXPECT_TRUE(fits(wire::FrameKind::rdma_offer, sizeof(wire::RdmaBody)));
  EXPECT_TRUE(fits(wire::FrameKind::rdma_accept, sizeof(wire::RdmaBody)));
  EXPECT_TRUE(fits(wire::FrameKind::rdma_ready, 0));
  EXPECT_TRUE(fits(wire::FrameKind::rdma_decline, sizeof(wire::RefuseBody)));
  EXPECT_FALSE(fits(wire::FrameKind::rdma_offer, sizeof(wire::RdmaBody) + 1));
  EXPECT_FALSE(fits(wire::FrameKind::rdma_ready, 1));
  EXPECT_FALSE(fits(wire::FrameKind::rdma_decline, 1 << 20));
}

}  // namespace
}  // namespace control_channel_test
}  // namespace tern::rdma
