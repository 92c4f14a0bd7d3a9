#pragma once

// What every Transport must do, alone and under a Link. An implementation's test file makes a
// ConformanceWorld and instantiates TransportConformance with it.
//
// Time is a ManualClock everywhere, also over real sockets, so that no test depends on how fast it
// runs; what takes real time is awaited with a bound on the number of rounds only.

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>

#include "base/clock.h"
#include "net/faulty.h"
#include "net/link.h"
#include "tests/net/link_pair.h"
#include "wire/hello.h"

namespace tern::net {

// Two daemons: A connects, B listens.
class ConformanceWorld {
 public:
  virtual ~ConformanceWorld() = default;
  virtual Transport& transport_a() = 0;
  virtual Transport& transport_b() = 0;
  virtual std::unique_ptr<Acceptor> make_acceptor(const Clock& clock,
                                                  const AcceptorSettings& settings,
                                                  AcceptorSink& sink) = 0;
  // Lets real time pass if the transport needs it, at most about a millisecond.
  virtual void breathe() = 0;
};

struct ConformanceParam {
  const char* name;
  std::function<std::unique_ptr<ConformanceWorld>()> make;
};

inline void PrintTo(const ConformanceParam& param, std::ostream* out) { *out << param.name; }

// A sink for connections without a link.
class RawSink final : public ConnectionSink {
 public:
  void on_open(Connection&) override { ++opened; }
  bool on_header(Connection&, const wire::FrameHeader& header, PayloadPlace& place) override {
    headers.push_back(header);
    payload.assign(header.payload_bytes, std::byte{0});
    place = {std::span(payload).first(payload.size() / 2),
             std::span(payload).subspan(payload.size() / 2)};
    if (also_on_header) also_on_header();
    return accept;
  }
  void on_frame(Connection&, const wire::FrameHeader&, const PayloadPlace&, bool valid) override {
    payloads.push_back(payload);
    all_valid = all_valid && valid;
    if (also_on_frame) also_on_frame();
  }
  void on_closed(Connection&, Errc reason, const char* text) override {
    ++closed;
    closed_reason = reason;
    closed_text = text;
    if (also_on_closed) also_on_closed();
  }

  std::function<void()> also_on_header, also_on_frame, also_on_closed;
  bool accept = true;
  bool all_valid = true;
  int opened = 0;
  int closed = 0;
  Errc closed_reason = Errc::ok;
  std::string closed_text;
  std::vector<wire::FrameHeader> headers;
  std::vector<std::vector<std::byte>> payloads;
  std::vector<std::byte> payload;
};

// A whole frame, contiguous.
std::vector<std::byte> sealed(wire::FrameHeader header, std::span<const std::byte> payload);

class TransportConformance : public ::testing::TestWithParam<ConformanceParam> {
 protected:
  static constexpr wire::NodeId kNodeA{1, 1};
  static constexpr wire::NodeId kNodeB{2, 2};
  static constexpr int kRounds = 30'000;

  void SetUp() override {
    world = GetParam().make();
    transport_a = &world->transport_a();
    acceptor = world->make_acceptor(clock, acceptor_settings, accepted);
    ASSERT_TRUE(acceptor);
    target = acceptor->endpoint();
    accepted.take = [this](std::unique_ptr<Incoming> incoming, const wire::HelloBody& hello) {
      if (b) b->offer(incoming, hello);
    };
  }
  void TearDown() override {
    raw_a.reset();
    raw_b.reset();
    a.reset();
    b.reset();
    faults.reset();
    accepted.offered.clear();
    acceptor.reset();
  }

  // From here on A sends through a transport that can be told to break things.
  FaultyTransport& add_faults() {
    faults.emplace(world->transport_a(), clock, FaultSettings{}, 1);
    transport_a = &*faults;
    return *faults;
  }
  int step() {
    int work = acceptor ? acceptor->poll() : 0;
    work += transport_a->poll() + world->transport_b().poll();
    if (a) work += a->tick();
    if (b) work += b->tick();
    return work;
  }
  // Time moves too, slowly enough that no timeout of the links fires while something happens.
  ::testing::AssertionResult until(const std::function<bool()>& condition) {
    int idle_rounds = 0;
    for (int rounds = 0; idle_rounds < kRounds && rounds < 100 * kRounds; ++rounds) {
      if (condition()) return ::testing::AssertionSuccess();
      if (step() == 0) {
        ++idle_rounds;
        world->breathe();
        clock.advance_ns(100'000);
      }
    }
    return ::testing::AssertionFailure() << "it does not happen";
  }
  // Lets time pass in steps.
  void run_for(std::uint64_t ns) {
    constexpr std::uint64_t kStep = 100'000'000;
    for (std::uint64_t passed = 0; passed < ns; passed += kStep) {
      clock.advance_ns(kStep);
      for (int i = 0; i < 5; ++i) {
        if (step() == 0) world->breathe();
      }
    }
  }
  std::unique_ptr<Link> make_active(wire::NodeId expected = kNodeB) {
    return std::make_unique<Link>(
        *transport_a, clock, Link::Setup{settings, {kNodeA, expected, 3, target, true}}, sink_a);
  }
  std::unique_ptr<Link> make_passive() {
    return std::make_unique<Link>(world->transport_b(), clock,
                                  Link::Setup{settings, {kNodeB, kNodeA, 3, {}, false}}, sink_b);
  }
  void connect_links() {
    a = make_active();
    b = make_passive();
    ASSERT_TRUE(until([&] {
      return a->state() == LinkState::open && b->state() == LinkState::open;
    })) << sink_a.lost_text;
  }
  // Raw connections, past the hello.
  void connect_raw() { connect(raw_a, raw_sink_a, raw_b, raw_sink_b); }
  void connect(std::unique_ptr<Connection>& at_a, RawSink& of_a, std::unique_ptr<Connection>& at_b,
               RawSink& of_b) {
    const wire::HelloFrame hello = hello_frame();
    accepted.take = nullptr;
    at_a = transport_a->connect(target, of_a);
    ASSERT_TRUE(until([&] { return of_a.opened == 1; }));
    at_a->send({std::as_bytes(std::span(&hello, 1)), {}});
    ASSERT_TRUE(until([&] { return accepted.offered.size() == 1; }));
    at_b = world->transport_b().adopt(std::move(accepted.offered.front().incoming), of_b);
    accepted.offered.clear();
  }
  static wire::HelloFrame hello_frame(const std::function<void(wire::HelloBody&)>& change = {}) {
    wire::HelloBody body;
    body.node = kNodeA;
    body.session = 1;
    if (change) change(body);
    return wire::make_hello(wire::FrameKind::hello, body);
  }
  // Opens a connection, sends these bytes first, and waits for the acceptor to refuse it.
  void expect_refused_first_bytes(std::span<const std::byte> bytes, Errc reason) {
    raw_a = transport_a->connect(target, raw_sink_a);
    ASSERT_TRUE(until([&] { return raw_sink_a.opened == 1; }));
    raw_a->send({bytes, {}});
    ASSERT_TRUE(until([&] { return accepted.refused.size() == 1; }));
    EXPECT_EQ(accepted.refused[0].first, reason) << accepted.refused[0].second;
    ASSERT_TRUE(until([&] { return raw_sink_a.closed == 1; }));
  }
  ManualClock clock;
  LinkSettings settings;
  AcceptorSettings acceptor_settings;
  std::unique_ptr<ConformanceWorld> world;
  std::optional<FaultyTransport> faults;
  Transport* transport_a = nullptr;
  RecordingAcceptorSink accepted;
  std::unique_ptr<Acceptor> acceptor;
  Endpoint target;
  RecordingSink sink_a, sink_b;
  std::unique_ptr<Link> a, b;
  RawSink raw_sink_a, raw_sink_b;
  std::unique_ptr<Connection> raw_a, raw_b;
};

}  // namespace tern::net
