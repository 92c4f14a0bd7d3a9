#include "net/faulty.h"

#include <gtest/gtest.h>

#include <random>

#include "net/loopback.h"
#include "tests/environment.h"
#include "tests/net/link_pair.h"

namespace tern::net {
namespace {

constexpr std::uint64_t kMillisecond = 1'000'000;

// Two links over mistreated connections; everything is drawn from one seed.
class Campaign {
 public:
  explicit Campaign(std::uint64_t seed) : random_(seed) {
    for (FaultyTransport* side : {&faulty_a_, &faulty_b_}) side->set_settings(draw_faults());
    accepted_.take = [this](std::unique_ptr<Incoming> incoming, const wire::HelloBody& hello) {
      b_.offer(incoming, hello);
    };
  }

  void run() {
    for (int i = 0; i < 150; ++i) {
      if (below(3) != 0) send(a_, sent_a_);
      if (below(3) != 0) send(b_, sent_b_);
      for (std::uint64_t steps = below(8); steps > 0; --steps) step();
      if (below(50) == 0) (below(2) == 0 ? faulty_a_ : faulty_b_).cut_all();
      clock_.advance_ns(below(3) * kMillisecond);
    }
    // The faults end; what they broke must heal.
    faulty_a_.set_settings({});
    faulty_b_.set_settings({});
    for (int i = 0; i < 20'000 && !is_done(); ++i) {
      if (step() == 0) clock_.advance_ns(10 * kMillisecond);
    }
    EXPECT_EQ(sink_a_.lost, 0) << sink_a_.lost_text;
    EXPECT_EQ(sink_b_.lost, 0) << sink_b_.lost_text;
    ASSERT_TRUE(is_done()) << a_.unacked_frames() << " and " << b_.unacked_frames() << " unacked";
    check(sent_a_, sink_b_, sink_a_, faulty_a_.counters());
    check(sent_b_, sink_a_, sink_b_, faulty_b_.counters());
    resumes += a_.stats().resumes;
  }

  std::uint64_t resumes = 0;

 private:
  using Sent = std::deque<std::vector<std::byte>>;

  std::uint64_t below(std::uint64_t bound) { return random_() % bound; }
  std::uint32_t rate() { return below(3) == 0 ? static_cast<std::uint32_t>(below(60'000)) : 0; }
  FaultSettings draw_faults() {
    FaultSettings faults;
    faults.drop = rate();
    faults.duplicate = rate();
    faults.reorder = rate();
    faults.delay = 10 * rate();
    faults.corrupt_header = rate();
    faults.corrupt_payload = rate();
    faults.truncate = rate();
    faults.cut = rate();
    faults.delay_max_ns = 1 + below(20 * kMillisecond);
    return faults;
  }
  void send(Link& link, Sent& sent) {
    const std::uint64_t number = sent.size() + 1;
    sent.push_back(pattern(below(2) == 0 ? below(200) : below(9000), number));
    const std::span<const std::byte> payload(sent.back());
    const std::size_t prefix = std::min<std::size_t>(payload.size(), below(65));
    link.send(block_header(number), payload.first(prefix), payload.subspan(prefix), number);
  }
  int step() {
    return acceptor_.poll() + faulty_a_.poll() + faulty_b_.poll() + a_.tick() + b_.tick();
  }
  bool is_done() const {
    return a_.unacked_frames() == 0 && b_.unacked_frames() == 0 && !sent_a_.empty() &&
           a_.state() == LinkState::open && b_.state() == LinkState::open;
  }
  static void check(const Sent& sent, const RecordingSink& there, const RecordingSink& here,
                    const FaultCounters& counters) {
    ASSERT_EQ(there.received.size(), sent.size()) << "exactly once";
    std::uint64_t damaged = 0;
    for (std::size_t i = 0; i < sent.size(); ++i) {
      ASSERT_EQ(there.received[i].header.tensor, i + 1) << "in order";
      if (there.received[i].payload_valid) {
        ASSERT_TRUE(there.received[i].payload == sent[i]) << "frame " << i + 1;
      } else {
        ++damaged;
      }
    }
    EXPECT_LE(damaged, counters.payloads_corrupted);
    ASSERT_EQ(here.acked.size(), sent.size());
    for (const auto& [cookie, times] : here.acked) {
      ASSERT_EQ(times, 1) << "cookie " << cookie;
    }
  }

  std::mt19937_64 random_;
  ManualClock clock_;
  // Patient: a hello may be dropped many times in a row.
  const LinkSettings settings_{.resume_timeout_ns = 20'000 * kMillisecond};
  LoopbackNetwork network_;
  const Endpoint at_a_{"a", 1}, at_b_{"b", 1};
  LoopbackTransport loopback_a_{network_, at_a_};
  LoopbackTransport loopback_b_{network_, at_b_};
  FaultyTransport faulty_a_{loopback_a_, clock_, {}, random_()};
  FaultyTransport faulty_b_{loopback_b_, clock_, {}, random_()};
  RecordingAcceptorSink accepted_;
  LoopbackAcceptor acceptor_{network_, clock_, {at_b_}, accepted_};
  RecordingSink sink_a_, sink_b_;
  Sent sent_a_, sent_b_;
  Link a_{faulty_a_, clock_, {settings_, {{1, 1}, {2, 2}, 0, at_b_, true}}, sink_a_};
  Link b_{faulty_b_, clock_, {settings_, {{2, 2}, {1, 1}, 0, {}, false}}, sink_b_};
};

// TERN_SEED=n runs that seed alone; TERN_SEEDS=n changes how many are run.
TEST(FaultyCampaign, EverythingArrivesOnceAndInOrderWhateverBreaks) {
  const std::uint64_t only = tests::number_of("TERN_SEED", 0);
  const std::uint64_t first = only != 0 ? only : 1;
  const std::uint64_t count = only != 0 ? 1 : tests::number_of("TERN_SEEDS", 400);
  std::uint64_t resumes = 0;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    SCOPED_TRACE("TERN_SEED=" + std::to_string(seed));
    Campaign campaign(seed);
    campaign.run();
    resumes += campaign.resumes;
    if (HasFailure()) break;
  }
  if (only == 0) {
    EXPECT_GT(resumes, count) << "the campaign breaks too little";
  }
}

// TCP loses nothing, but the carrier after it may: nothing follows this frame that would show the
// gap.
TEST(Faulty, ALastFrameThatIsDroppedIsNoticedByTheNextHeartbeat) {
  ManualClock clock;
  LoopbackNetwork network;
  LoopbackTransport inner(network, {"a", 1}), transport_b(network, {"b", 1});
  FaultyTransport transport(inner, clock, {}, 1);
  RecordingAcceptorSink accepted;
  LoopbackAcceptor acceptor(network, clock, {{"b", 1}}, accepted);
  RecordingSink sink_a, sink_b;
  const LinkSettings settings;
  Link a(transport, clock, {settings, {{1, 1}, {2, 2}, 0, {"b", 1}, true}}, sink_a);
  Link b(transport_b, clock, {settings, {{2, 2}, {1, 1}, 0, {}, false}}, sink_b);
  accepted.take = [&](std::unique_ptr<Incoming> incoming, const wire::HelloBody& hello) {
    b.offer(incoming, hello);
  };
  const auto run = [&](int rounds) {
    for (int i = 0; i < rounds; ++i) {
      clock.advance_ns(kMillisecond);
      acceptor.poll();
      transport.poll();
      transport_b.poll();
      a.tick();
      b.tick();
    }
  };
  run(10);
  ASSERT_EQ(a.state(), LinkState::open);
  transport.set_settings({.drop = 1'000'000});
  a.send_copy(block_header(1), pattern(10, 1));
  transport.set_settings({});
  run(static_cast<int>(settings.heartbeat_ns / kMillisecond) + 100);
  EXPECT_EQ(sink_b.received.size(), 1u);
  EXPECT_EQ(a.unacked_frames(), 0u);
  EXPECT_EQ(b.stats().resumes, 1u);
}

TEST(Faulty, OneSeedIsOneRun) {
  const auto counters_of = [](std::uint64_t seed) {
    ManualClock clock;
    LoopbackNetwork network;
    LoopbackTransport inner(network, {"a", 1});
    const FaultSettings settings{.drop = 300'000, .duplicate = 300'000, .delay = 500'000};
    FaultyTransport transport(inner, clock, settings, seed);
    RecordingAcceptorSink accepted;
    LoopbackAcceptor acceptor(network, clock, {{"b", 1}}, accepted);
    RecordingSink sink;
    // Nobody answers, so it says hello again and again.
    Link link(transport, clock,
              {{.peer_timeout_ns = 1'000'000 * kMillisecond}, {{1, 1}, {2, 2}, 0, {"b", 1}, true}},
              sink);
    for (int i = 0; i < 2000; ++i) {
      clock.advance_ns(100 * kMillisecond);
      link.tick();
      transport.poll();
      acceptor.poll();
    }
    const FaultCounters& c = transport.counters();
    return std::vector<std::uint64_t>{c.frames, c.dropped, c.duplicated, c.delayed};
  };
  EXPECT_EQ(counters_of(1), counters_of(1));
  EXPECT_NE(counters_of(1), counters_of(2));
}

}  // namespace
}  // namespace tern::net
