#include "net/link.h"

#include <gtest/gtest.h>

#include "base/clock.h"
#include "net/loopback.h"
#include "tests/net/link_pair.h"

namespace tern::net {
namespace {

constexpr wire::NodeId kNodeA{1, 1};
constexpr wire::NodeId kNodeB{2, 2};
constexpr std::uint64_t kMillisecond = 1'000'000;

// A connects to B, on one clock that moves by hand.
class LinkTest : public ::testing::Test {
 protected:
  LinkTest()
      : transport_a(network, at_a),
        transport_b(network, at_b),
        acceptor(network, clock, {at_b}, accepted) {
    a = make_active();
    b = make_passive();
    accepted.take = [this](std::unique_ptr<Incoming> incoming, const wire::HelloBody& hello) {
      last_hello = hello;
      if (b) offered = b->offer(incoming, hello);
    };
  }

  std::unique_ptr<Link> make_active() {
    return std::make_unique<Link>(transport_a, clock,
                                  Link::Setup{settings, {kNodeA, kNodeB, 0, at_b, true}}, sink_a);
  }
  std::unique_ptr<Link> make_passive() {
    return std::make_unique<Link>(transport_b, clock,
                                  Link::Setup{settings, {kNodeB, kNodeA, 0, {}, false}}, sink_b);
  }

  int step() {
    int work = acceptor.poll() + transport_a.poll() + transport_b.poll();
    if (a) work += a->tick();
    if (b) work += b->tick();
    return work;
  }
  // Until nothing happens any more without the clock.
  void settle() {
    for (int i = 0; i < 100'000; ++i) {
      if (step() == 0) return;
    }
    FAIL() << "the links never come to rest";
  }
  void run_for(std::uint64_t ns) {
    for (std::uint64_t passed = 0; passed < ns; passed += 10 * kMillisecond) {
      clock.advance_ns(10 * kMillisecond);
      settle();
    }
  }
  void connect() {
    settle();
    ASSERT_EQ(a->state(), LinkState::open);
    ASSERT_EQ(b->state(), LinkState::open);
  }
  void send(Link& link, std::uint64_t number, std::span<const std::byte> payload) {
    const std::size_t split = std::min<std::size_t>(payload.size(), 32);
    link.send(block_header(number), payload.first(split), payload.subspan(split), number);
  }

  ManualClock clock;
  LoopbackNetwork network;
  const Endpoint at_a{"a", 1}, at_b{"b", 1};
  LinkSettings settings;
  LoopbackTransport transport_a, transport_b;
  RecordingAcceptorSink accepted;
  LoopbackAcceptor acceptor;
  RecordingSink sink_a, sink_b;
  wire::HelloBody last_hello;
  bool offered = false;
  std::unique_ptr<Link> a, b;
};

TEST_F(LinkTest, DeliversInOrderAndReleasesEachCookieOnce) {
  connect();
  std::vector<std::vector<std::byte>> payloads;
  for (std::uint64_t i = 1; i <= 100; ++i) payloads.push_back(pattern(i * 37 % 3000, i));
  for (std::uint64_t i = 1; i <= 100; ++i) send(*a, i, payloads[i - 1]);
  EXPECT_EQ(a->unacked_frames(), 100u);
  run_for(20 * kMillisecond);
  ASSERT_EQ(sink_b.received.size(), 100u);
  for (std::uint64_t i = 1; i <= 100; ++i) {
    EXPECT_EQ(sink_b.received[i - 1].header.link_seq, i);
    EXPECT_EQ(sink_b.received[i - 1].header.tensor, i);
    EXPECT_EQ(sink_b.received[i - 1].payload, payloads[i - 1]);
    EXPECT_TRUE(sink_b.received[i - 1].payload_valid);
    EXPECT_EQ(sink_a.acked[i], 1);
  }
  EXPECT_EQ(a->unacked_frames(), 0u);
  EXPECT_EQ(a->unacked_bytes(), 0u);
  EXPECT_EQ(a->stats().acked_bytes, b->stats().bytes_received);
  EXPECT_GT(a->stats().round_trip_ns, 0u);
}

TEST_F(LinkTest, FramesSentBeforeItIsOpenArrive) {
  const auto payload = pattern(100, 1);
  send(*a, 1, payload);
  send(*b, 2, payload);
  connect();
  ASSERT_EQ(sink_b.received.size(), 1u);
  ASSERT_EQ(sink_a.received.size(), 1u);
  EXPECT_EQ(a->stats().replayed_frames, 0u);
}

TEST_F(LinkTest, SendCopyNeedsNoMemoryOfTheCaller) {
  connect();
  for (const std::size_t size : {0u, 10u, 64u, 65u, 500u}) {
    auto payload = pattern(size, size);
    const auto rest = pattern(300, 2);
    auto expected = payload;
    expected.insert(expected.end(), rest.begin(), rest.end());
    a->send_copy(block_header(1, wire::FrameKind::control), payload, rest);
    std::fill(payload.begin(), payload.end(), std::byte{0});
    settle();
    EXPECT_EQ(sink_b.received.back().payload, expected);
  }
  run_for(20 * kMillisecond);
  EXPECT_EQ(a->unacked_frames(), 0u);
  EXPECT_TRUE(sink_a.acked.empty()) << "there is no cookie to release";
}

TEST_F(LinkTest, AcksWithoutTrafficComeAfterTheDelay) {
  connect();
  const auto payload = pattern(10, 1);
  send(*a, 1, payload);
  settle();
  EXPECT_EQ(a->unacked_frames(), 1u);
  EXPECT_LE(b->next_deadline_ns(), clock.now_ns() + settings.ack_delay_ns);
  clock.advance_ns(settings.ack_delay_ns);
  settle();
  EXPECT_EQ(a->unacked_frames(), 0u);
}

TEST_F(LinkTest, AcksComeAtOnceWhereThePeerWaitsForThem) {
  connect();
  const auto payload = pattern(10, 1);
  send(*a, 1, payload);
  settle();
  b->acknowledge_soon();
  EXPECT_LE(b->next_deadline_ns(), clock.now_ns());
  settle();
  EXPECT_EQ(a->unacked_frames(), 0u);
  EXPECT_EQ(sink_a.acked.count(1), 1u);
}

TEST_F(LinkTest, AcksComeAtOnceAfterManyFrames) {
  connect();
  const auto payload = pattern(10, 1);
  for (std::uint64_t i = 1; i <= settings.ack_frames; ++i) send(*a, i, payload);
  settle();
  EXPECT_EQ(a->unacked_frames(), 0u);
}

TEST_F(LinkTest, AcksTravelInFramesOfTheOtherDirection) {
  connect();
  const auto payload = pattern(10, 1);
  send(*a, 1, payload);
  sink_b.also_on_frame = [&](Link& link) { send(link, 2, payload); };
  settle();
  EXPECT_EQ(sink_a.acked[1], 1) << "the answer has acknowledged it, with no time passed";
}

TEST_F(LinkTest, TellsThePeerItsDecodeTimeAndRate) {
  connect();
  b->add_decode_ns(1234);
  b->report_delivered(125'000'000);
  const auto payload = pattern(10, 1);
  send(*a, 1, payload);
  run_for(20 * kMillisecond);
  EXPECT_EQ(a->stats().peer_decode_ns, 1234u);
  EXPECT_EQ(a->stats().peer_delivers, 125'000'000u);
}

TEST_F(LinkTest, AWrongPayloadIsReportedAndTheLinkGoesOn) {
  connect();
  // The bytes change between the CRC and the carrier, as arena bytes of a careless program may.
  network.set_partitioned(at_a, at_b, true);
  auto payload = pattern(100, 1);
  a.reset();
  b.reset();
  transport_a.poll();
  network.set_partitioned(at_a, at_b, false);
  a = make_active();
  b = make_passive();
  send(*a, 1, payload);
  payload[50] ^= std::byte{1};
  connect();
  ASSERT_EQ(sink_b.received.size(), 1u);
  EXPECT_FALSE(sink_b.received[0].payload_valid);
  EXPECT_EQ(b->stats().bad_payloads, 1u);
  EXPECT_EQ(b->state(), LinkState::open);
  run_for(20 * kMillisecond);
  EXPECT_EQ(sink_a.acked[1], 1);
}

TEST_F(LinkTest, AThrownAwayPayloadIsStillAcknowledged) {
  connect();
  sink_b.discard_next = true;
  const auto payload = pattern(5000, 1);
  send(*a, 1, payload);
  run_for(20 * kMillisecond);
  ASSERT_EQ(sink_b.received.size(), 1u);
  EXPECT_TRUE(sink_b.received[0].payload.empty());
  EXPECT_TRUE(sink_b.received[0].payload_valid);
  EXPECT_EQ(sink_a.acked[1], 1);
}

TEST_F(LinkTest, ResumesAndReplaysAfterTheConnectionIsReset) {
  connect();
  std::vector<std::vector<std::byte>> payloads;
  for (std::uint64_t i = 1; i <= 30; ++i) payloads.push_back(pattern(100 * i, i));
  for (std::uint64_t i = 1; i <= 10; ++i) send(*a, i, payloads[i - 1]);
  settle();
  for (std::uint64_t i = 11; i <= 20; ++i) send(*a, i, payloads[i - 1]);
  network.kill(at_b);  // what is under way is lost, then B is there again
  network.revive(at_b);
  for (std::uint64_t i = 21; i <= 30; ++i) send(*a, i, payloads[i - 1]);
  run_for(200 * kMillisecond);
  ASSERT_EQ(sink_b.received.size(), 30u);
  for (std::uint64_t i = 1; i <= 30; ++i) {
    EXPECT_EQ(sink_b.received[i - 1].payload, payloads[i - 1]);
    EXPECT_EQ(sink_a.acked[i], 1);
  }
  EXPECT_EQ(a->stats().resumes, 1u);
  EXPECT_EQ(b->stats().resumes, 1u);
  EXPECT_GT(a->stats().replayed_frames, 0u);
  EXPECT_EQ(sink_a.lost + sink_b.lost, 0);
}

TEST_F(LinkTest, HeartbeatsKeepAnIdleLink) {
  connect();
  run_for(20 * settings.peer_timeout_ns / 10);
  EXPECT_EQ(a->state(), LinkState::open);
  EXPECT_EQ(b->state(), LinkState::open);
  EXPECT_EQ(a->stats().resumes, 0u);
}

TEST_F(LinkTest, SilenceBreaksAndThenLosesBothSides) {
  connect();
  const auto payload = pattern(10, 1);
  network.set_partitioned(at_a, at_b, true);
  send(*a, 7, payload);
  run_for(settings.peer_timeout_ns - 100 * kMillisecond);
  EXPECT_EQ(a->state(), LinkState::open);
  run_for(200 * kMillisecond);
  EXPECT_EQ(a->state(), LinkState::broken);
  EXPECT_EQ(sink_a.acked.count(7), 0u);
  run_for(settings.resume_timeout_ns);
  EXPECT_EQ(sink_a.lost, 1);
  EXPECT_EQ(sink_a.lost_reason, Errc::peer_lost);
  EXPECT_EQ(sink_a.acked[7], 1) << "its memory is free again";
  EXPECT_EQ(sink_b.lost, 1);
  EXPECT_EQ(a->unacked_frames(), 0u);
}

TEST_F(LinkTest, SilenceIsNotCountedWhileNothingIsRead) {
  connect();
  network.set_partitioned(at_a, at_b, true);
  const auto hold_for = [&](std::uint64_t ns) {
    for (std::uint64_t passed = 0; passed < ns; passed += 100 * kMillisecond) {
      a->hold_reading(true);
      run_for(100 * kMillisecond);
    }
  };
  hold_for(2 * settings.peer_timeout_ns);
  EXPECT_EQ(a->state(), LinkState::open);
  a->hold_reading(false);
  run_for(settings.peer_timeout_ns + 100 * kMillisecond);
  EXPECT_NE(a->state(), LinkState::open) << "and from then on it is";
}

TEST_F(LinkTest, APartitionThatHealsInTimeCostsNothing) {
  connect();
  const auto payload = pattern(10, 1);
  network.set_partitioned(at_a, at_b, true);
  send(*a, 1, payload);
  run_for(settings.peer_timeout_ns + settings.resume_timeout_ns / 2);
  network.set_partitioned(at_a, at_b, false);
  run_for(200 * kMillisecond);
  EXPECT_EQ(a->state(), LinkState::open);
  EXPECT_EQ(sink_b.received.size(), 1u);
  EXPECT_EQ(sink_a.acked[1], 1);
}

TEST_F(LinkTest, GoodbyeLosesBothSidesAtOnce) {
  connect();
  b->say_goodbye();
  EXPECT_EQ(sink_b.lost_reason, Errc::shutting_down);
  settle();
  EXPECT_EQ(sink_a.lost, 1);
  EXPECT_EQ(sink_a.lost_reason, Errc::peer_lost);
  EXPECT_TRUE(a->said_goodbye() && b->said_goodbye());
}

// A first attempt has a time of its own.
TEST_F(LinkTest, OpensAlsoWhereNoneIsResumed) {
  settings.resume_timeout_ns = 0;
  a = make_active();
  b = make_passive();
  connect();
  network.set_partitioned(at_a, at_b, true);
  run_for(settings.peer_timeout_ns + 100 * kMillisecond);
  EXPECT_EQ(sink_a.lost, 1);
  EXPECT_EQ(sink_b.lost, 1);
}

TEST_F(LinkTest, NobodyListensThereForTooLong) {
  network.kill(at_b);
  run_for(settings.peer_timeout_ns + settings.resume_timeout_ns);
  EXPECT_EQ(sink_a.lost, 1);
  EXPECT_EQ(sink_a.lost_reason, Errc::unreachable);
  EXPECT_FALSE(a->said_goodbye());
  EXPECT_NE(sink_a.lost_text.find("b:1"), std::string::npos) << sink_a.lost_text;
  EXPECT_EQ(sink_b.lost, 1) << "nobody has connected";
}

TEST_F(LinkTest, ARestartedDaemonIsNotTakenForTheOldOne) {
  connect();
  b->close();
  sink_b = {};
  b = std::make_unique<Link>(transport_b, clock,
                             Link::Setup{settings, {{9, 9}, kNodeA, 0, {}, false}}, sink_b);
  run_for(100 * kMillisecond);
  EXPECT_EQ(sink_a.lost, 1);
  EXPECT_EQ(sink_a.lost_reason, Errc::peer_lost);
  EXPECT_NE(sink_a.lost_text.find("restarted"), std::string::npos) << sink_a.lost_text;
}

TEST_F(LinkTest, AnUnknownSessionIsNotResumed) {
  connect();
  b->close();
  sink_b = {};
  b = make_passive();
  run_for(100 * kMillisecond);
  EXPECT_EQ(sink_a.lost, 1);
  EXPECT_NE(sink_a.lost_text.find("session"), std::string::npos) << sink_a.lost_text;
  EXPECT_EQ(b->state(), LinkState::connecting);
}

TEST_F(LinkTest, ANewSessionEndsTheOldLinkAndIsOfferedToANewOne) {
  connect();
  a->close();
  sink_a = {};
  a = make_active();
  std::unique_ptr<Link> old = std::move(b);
  RecordingSink sink_new;
  accepted.take = [&](std::unique_ptr<Incoming> incoming, const wire::HelloBody& hello) {
    EXPECT_FALSE(old->offer(incoming, hello));
    b = std::make_unique<Link>(transport_b, clock,
                               Link::Setup{settings, {kNodeB, kNodeA, 0, {}, false}}, sink_new);
    EXPECT_TRUE(b->offer(incoming, hello));
  };
  settle();
  EXPECT_EQ(sink_b.lost, 1);
  connect();
}

TEST_F(LinkTest, ThePeerIsLearntFromItsHello) {
  a = std::make_unique<Link>(transport_a, clock, Link::Setup{settings, {kNodeA, {}, 0, at_b, true}},
                             sink_a);
  connect();
  EXPECT_EQ(a->identity().peer, kNodeB);
}

TEST_F(LinkTest, WhenBothConnectTheLowerNodesSessionIsUsed) {
  LoopbackAcceptor acceptor_a(network, clock, {at_a}, accepted);
  b = std::make_unique<Link>(transport_b, clock,
                             Link::Setup{settings, {kNodeB, kNodeA, 0, at_a, true}}, sink_b);
  accepted.take = [&](std::unique_ptr<Incoming> incoming, const wire::HelloBody& hello) {
    EXPECT_TRUE((hello.node == kNodeA ? b : a)->offer(incoming, hello));
  };
  const auto payload = pattern(10, 1);
  send(*a, 1, payload);
  send(*b, 2, payload);
  for (int i = 0; i < 50; ++i) {
    acceptor_a.poll();
    settle();
  }
  connect();
  EXPECT_TRUE(a->identity().active);
  EXPECT_FALSE(b->identity().active);
  EXPECT_EQ(sink_a.received.size(), 1u);
  EXPECT_EQ(sink_b.received.size(), 1u);
}

TEST_F(LinkTest, AFrameThatBreaksTheProtocolLosesBothSides) {
  connect();
  sink_b.accept = false;
  const auto payload = pattern(10, 1);
  send(*a, 1, payload);
  settle();
  EXPECT_EQ(sink_b.lost_reason, Errc::protocol_error);
  EXPECT_EQ(sink_b.breaches, 1);
  EXPECT_EQ(sink_a.lost, 1);
  EXPECT_EQ(sink_a.lost_reason, Errc::protocol_error);
  EXPECT_EQ(sink_a.breaches, 0) << "it is told of its own";
}

TEST_F(LinkTest, TheSinkMaySendAndCloseFromItsCallbacks) {
  connect();
  const auto payload = pattern(10, 1);
  int rounds = 0;
  sink_b.also_on_frame = [&](Link& link) { send(link, 1, payload); };
  sink_a.also_on_acked = [&](Link& link, std::uint64_t) {
    if (++rounds < 5) send(link, 1, payload);
  };
  sink_a.also_on_frame = [&](Link& link) {
    if (rounds == 5) link.close();
  };
  send(*a, 1, payload);
  run_for(100 * kMillisecond);
  EXPECT_EQ(rounds, 5);
  EXPECT_EQ(a->state(), LinkState::lost);
  EXPECT_EQ(sink_a.lost, 0) << "close() tells nobody";
}

TEST_F(LinkTest, ClosingFreesWithoutCallbacks) {
  connect();
  const auto payload = pattern(10, 1);
  send(*a, 1, payload);
  a->close();
  EXPECT_EQ(a->unacked_frames(), 0u);
  EXPECT_TRUE(sink_a.acked.empty());
  send(*a, 2, payload);
  EXPECT_EQ(a->unacked_frames(), 0u);
}

}  // namespace
}  // namespace tern::net
