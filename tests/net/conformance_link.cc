// TransportConformance with links on top.

#include "tests/net/transport_conformance.h"

namespace tern::net {
namespace {

// Sends frames with cookies 1, 2, ... and keeps their bytes.
class Sender {
 public:
  explicit Sender(Link& link) : link_(link) {}
  void send(std::size_t size) {
    const std::uint64_t number = payloads.size() + 1;
    payloads.push_back(pattern(size, number));
    const std::span<const std::byte> payload(payloads.back());
    const std::size_t prefix = std::min<std::size_t>(size, number % (Link::kMaxPrefixBytes + 1));
    link_.send(block_header(number), payload.first(prefix), payload.subspan(prefix), number);
  }
  void expect_all_in(const RecordingSink& sink) const {
    ASSERT_EQ(sink.received.size(), payloads.size());
    for (std::size_t i = 0; i < payloads.size(); ++i) {
      ASSERT_EQ(sink.received[i].header.link_seq, i + 1);
      ASSERT_EQ(sink.received[i].header.tensor, i + 1);
      ASSERT_TRUE(sink.received[i].payload == payloads[i]) << "frame " << i + 1;
      ASSERT_TRUE(sink.received[i].payload_valid) << "frame " << i + 1;
    }
  }
  void expect_all_released(const RecordingSink& own) const {
    EXPECT_EQ(own.acked.size(), payloads.size());
    for (const auto& [cookie, times] : own.acked) EXPECT_EQ(times, 1) << "cookie " << cookie;
  }

  std::deque<std::vector<std::byte>> payloads;

 private:
  Link& link_;
};

}  // namespace

TEST_P(TransportConformance, LinksCarryAllSizesInOrderBothWays) {
  connect_links();
  Sender from_a(*a), from_b(*b);
  for (const std::size_t size :
       {0u, 1u, 63u, 64u, 65u, 4096u, 16u << 10, (16u << 10) - 88, 100'000u}) {
    from_a.send(size);
    from_b.send(size + 1);
  }
  from_a.send(5 << 20);
  from_b.send(wire::kMaxPayloadBytes);
  ASSERT_TRUE(until([&] { return a->unacked_frames() == 0 && b->unacked_frames() == 0; }));
  from_a.expect_all_in(sink_b);
  from_b.expect_all_in(sink_a);
  from_a.expect_all_released(sink_a);
  from_b.expect_all_released(sink_b);
  EXPECT_EQ(a->stats().resumes + b->stats().resumes, 0u);
}

TEST_P(TransportConformance, LinksCarryThousandsOfFrames) {
  connect_links();
  Sender from_a(*a), from_b(*b);
  for (std::size_t i = 0; i < 3000; ++i) {
    from_a.send(i * 7919 % 2000);
    if (i % 3 == 0) from_b.send(i * 104729 % 30'000);
    if (i % 16 == 0) step();
  }
  ASSERT_TRUE(until([&] { return a->unacked_frames() == 0 && b->unacked_frames() == 0; }));
  from_a.expect_all_in(sink_b);
  from_b.expect_all_in(sink_a);
  from_a.expect_all_released(sink_a);
  from_b.expect_all_released(sink_b);
}

TEST_P(TransportConformance, ADiscardedPayloadDoesNotDisturbTheNext) {
  connect_links();
  sink_b.discard_next = true;
  Sender from_a(*a);
  from_a.send(70'000);
  from_a.send(70'000);
  ASSERT_TRUE(until([&] { return a->unacked_frames() == 0; }));
  ASSERT_EQ(sink_b.received.size(), 2u);
  EXPECT_TRUE(sink_b.received[0].payload.empty());
  EXPECT_TRUE(sink_b.received[0].payload_valid);
  EXPECT_TRUE(sink_b.received[1].payload == from_a.payloads[1]);
}

TEST_P(TransportConformance, AWholePayloadMayGoToThePrefix) {
  connect_links();
  sink_b.prefix_bytes = wire::kMaxPayloadBytes;
  Sender from_a(*a);
  from_a.send(1 << 20);
  from_a.send(300);
  ASSERT_TRUE(until([&] { return a->unacked_frames() == 0; }));
  from_a.expect_all_in(sink_b);
}

TEST_P(TransportConformance, ACutConnectionIsResumedByReplay) {
  FaultyTransport& faulty = add_faults();
  connect_links();
  Sender from_a(*a), from_b(*b);
  for (int round = 0; round < 5; ++round) {
    for (std::size_t i = 0; i < 40; ++i) {
      from_a.send(i * 1000);
      from_b.send(i * 900);
      if (i % 10 == 0) step();
    }
    faulty.cut_all();
  }
  ASSERT_TRUE(until([&] { return a->unacked_frames() == 0 && b->unacked_frames() == 0; }))
      << sink_a.lost_text;
  from_a.expect_all_in(sink_b);
  from_b.expect_all_in(sink_a);
  from_a.expect_all_released(sink_a);
  from_b.expect_all_released(sink_b);
  EXPECT_GE(a->stats().resumes, 1u);
  EXPECT_GE(b->stats().resumes, 1u);
}

TEST_P(TransportConformance, AFrameCutInItsMiddleIsAbandonedAndAnnouncedAgain) {
  FaultyTransport& faulty = add_faults();
  connect_links();
  Sender from_a(*a);
  faulty.set_settings({.stall = 1'000'000});
  from_a.send(1 << 20);
  faulty.set_settings({});
  // Not before some of it is there: a connection that ends does not wait for long for the rest.
  ASSERT_TRUE(until([&] { return sink_b.placed == 1; }));
  faulty.cut_all();
  ASSERT_TRUE(until([&] { return a->unacked_frames() == 0; })) << sink_a.lost_text;
  from_a.expect_all_in(sink_b);
  EXPECT_EQ(sink_b.abandoned, 1);
  EXPECT_EQ(sink_b.placed, 2);
  EXPECT_EQ(a->stats().replayed_frames, 1u);
}

TEST_P(TransportConformance, ADroppedFrameIsAGapAndHeals) {
  FaultyTransport& faulty = add_faults();
  connect_links();
  Sender from_a(*a);
  faulty.set_settings({.drop = 1'000'000});
  from_a.send(1000);
  faulty.set_settings({});
  from_a.send(1000);
  ASSERT_TRUE(until([&] { return a->unacked_frames() == 0; })) << sink_a.lost_text;
  from_a.expect_all_in(sink_b);
  EXPECT_EQ(b->stats().refused_frames, 1u);
  EXPECT_EQ(b->stats().resumes, 1u);
}

TEST_P(TransportConformance, ADoubledFrameIsDeliveredOnce) {
  FaultyTransport& faulty = add_faults();
  connect_links();
  Sender from_a(*a);
  faulty.set_settings({.duplicate = 1'000'000});
  from_a.send(1000);
  faulty.set_settings({});
  from_a.send(1000);
  ASSERT_TRUE(until([&] { return a->unacked_frames() == 0 && sink_b.received.size() == 2; }))
      << sink_a.lost_text;
  from_a.expect_all_in(sink_b);
  EXPECT_EQ(b->stats().refused_frames, 1u);
}

TEST_P(TransportConformance, ACorruptHeaderBreaksTheConnectionAndHeals) {
  FaultyTransport& faulty = add_faults();
  connect_links();
  Sender from_a(*a);
  faulty.set_settings({.corrupt_header = 1'000'000});
  from_a.send(1000);
  faulty.set_settings({});
  from_a.send(1000);
  ASSERT_TRUE(until([&] { return a->unacked_frames() == 0; })) << sink_a.lost_text;
  from_a.expect_all_in(sink_b);
  EXPECT_EQ(b->stats().resumes, 1u);
  EXPECT_EQ(b->stats().bad_payloads, 0u);
}

TEST_P(TransportConformance, ACorruptPayloadIsReportedAndTheLinkGoesOn) {
  FaultyTransport& faulty = add_faults();
  connect_links();
  Sender from_a(*a);
  faulty.set_settings({.corrupt_payload = 1'000'000});
  from_a.send(40'000);
  faulty.set_settings({});
  from_a.send(1000);
  ASSERT_TRUE(until([&] { return a->unacked_frames() == 0; }));
  ASSERT_EQ(sink_b.received.size(), 2u);
  EXPECT_FALSE(sink_b.received[0].payload_valid);
  EXPECT_TRUE(sink_b.received[1].payload_valid);
  EXPECT_EQ(b->stats().bad_payloads, 1u);
  EXPECT_EQ(b->stats().resumes, 0u);
}

TEST_P(TransportConformance, AnUnexpectedNodeIsLostAtOnceWithText) {
  b = make_passive();
  a = make_active({7, 7});
  ASSERT_TRUE(until([&] { return sink_a.lost == 1; }));
  EXPECT_EQ(sink_a.lost_reason, Errc::peer_lost);
  EXPECT_NE(sink_a.lost_text.find("restarted"), std::string::npos) << sink_a.lost_text;
  EXPECT_NE(sink_a.lost_text.find(to_text(target)), std::string::npos) << sink_a.lost_text;
}

TEST_P(TransportConformance, GoodbyeArrivesBehindTheData) {
  connect_links();
  Sender from_a(*a);
  from_a.send(50'000);
  ASSERT_TRUE(until([&] { return sink_b.received.size() == 1; }));
  for (int i = 0; i < 3; ++i) from_a.send(100);
  a->say_goodbye();
  EXPECT_EQ(sink_a.lost, 1);
  from_a.expect_all_released(sink_a);
  ASSERT_TRUE(until([&] { return sink_b.lost == 1; }));
  EXPECT_EQ(sink_b.lost_reason, Errc::peer_lost);
  EXPECT_NE(sink_b.lost_text.find("shutting down"), std::string::npos) << sink_b.lost_text;
  from_a.expect_all_in(sink_b);
}

TEST_P(TransportConformance, AKilledPeerIsLostWithinTheTimeouts) {
  connect_links();
  Sender from_a(*a);
  from_a.send(1000);
  b->close();
  b.reset();
  acceptor.reset();
  ASSERT_TRUE(until([&] { return a->state() == LinkState::broken; }));
  run_for(settings.resume_timeout_ns + 100'000'000);
  EXPECT_EQ(sink_a.lost, 1);
  EXPECT_EQ(sink_a.lost_reason, Errc::peer_lost);
  from_a.expect_all_released(sink_a);
}

TEST_P(TransportConformance, ASilentPeerIsLostWithinTheTimeouts) {
  FaultyTransport& faulty = add_faults();
  connect_links();
  Sender from_b(*b);
  from_b.send(1000);
  faulty.set_partitioned(true);
  run_for(settings.peer_timeout_ns + settings.resume_timeout_ns + settings.heartbeat_ns);
  EXPECT_EQ(sink_b.lost, 1);
  EXPECT_EQ(sink_b.lost_reason, Errc::peer_lost);
  from_b.expect_all_released(sink_b);
}

TEST_P(TransportConformance, AnIdleLinkStaysOpen) {
  connect_links();
  run_for(3 * settings.peer_timeout_ns);
  EXPECT_EQ(a->state(), LinkState::open);
  EXPECT_EQ(b->state(), LinkState::open);
  EXPECT_EQ(a->stats().resumes + b->stats().resumes, 0u);
}

}  // namespace tern::net
