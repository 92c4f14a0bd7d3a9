#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <deque>
#include <string_view>

#include "net/tcp/tcp_transport.h"
#include "shm/page_guard.h"
#include "tests/net/sent_over_tcp.h"
#include "tests/net/tcp/gated_names.h"
#include "tests/net/tcp_world.h"

namespace tern::net {
namespace {

ConformanceParam tcp(const char* name, const TcpSettings& settings) {
  return {name, [settings] { return std::make_unique<TcpWorld>(settings); }};
}

// Small buffers and turns, so that reads and writes end in every place.
INSTANTIATE_TEST_SUITE_P(
    Tcp, TransportConformance,
    ::testing::Values(tcp("tcp", {}), tcp("tcp_small_turns", {.bytes_per_poll = 5000}),
                      tcp("tcp_short_polls", {.clock = HurriedClock::instance()}),
                      tcp("tcp_small_buffers",
                          {.send_buffer_bytes = 16384, .receive_buffer_bytes = 16384})),
    name_of_world);

class TcpPackets : public TransportConformance {
 protected:
  // How many packets a frame of this many bytes needs.
  std::uint64_t packets_of(std::size_t bytes, QueueBound bound) {
    raw_a->bound_queue(bound);
    const auto frame = sealed(block_header(1), pattern(bytes, 1));
    const std::uint64_t before = sent_over_tcp().packets;
    const std::size_t had = raw_sink_b.payloads.size();
    raw_a->send({frame, {}});
    EXPECT_TRUE(until([&] { return raw_sink_b.payloads.size() == had + 1; }));
    EXPECT_EQ(raw_sink_b.payloads.back(), pattern(bytes, 1));
    return sent_over_tcp().packets - before;
  }
};

// The loopback interface carries 64 KiB in a packet; a socket with a bound makes none of more than
// a record, because the kernel lets it have one more than its bound allows.
TEST_P(TcpPackets, AreSmallWhileTheQueueIsBounded) {
  constexpr std::size_t kBytes = 4 << 20, kBound = 64 << 10;
  connect_raw();
  EXPECT_GE(packets_of(kBytes, {kBound}), kBytes / (16 << 10));
  const std::uint64_t larger = packets_of(kBytes, {kBound, 32 << 10});
  EXPECT_GE(larger, kBytes / (32 << 10));
  EXPECT_LT(larger, kBytes / (16 << 10));
  EXPECT_LT(packets_of(kBytes, {}), kBytes / (16 << 10));
}

class TcpHeld : public TransportConformance {};

TEST_P(TcpHeld, ReadsNothingUntilItGoesOnAndSendsMeanwhile) {
  connect_raw();
  const auto frame = sealed(block_header(1), pattern(1000, 1));
  raw_b->hold_reading(true);
  raw_a->send({frame, {}});
  raw_b->send({frame, {}});
  EXPECT_TRUE(until([&] { return raw_sink_a.payloads.size() == 1; })) << "sends";
  // The frame to the held end left before, on the same machine.
  for (int i = 0; i < 20; ++i) {
    transport_a->poll();
    world->transport_b().poll();
  }
  EXPECT_TRUE(raw_sink_b.payloads.empty());
  EXPECT_EQ(raw_sink_b.closed, 0);
  raw_b->hold_reading(false);
  EXPECT_TRUE(until([&] { return raw_sink_b.payloads.size() == 1; }));
  EXPECT_EQ(raw_sink_b.payloads.back(), pattern(1000, 1));
}

INSTANTIATE_TEST_SUITE_P(Tcp, TcpHeld, ::testing::Values(tcp("tcp", {})), name_of_world);
INSTANTIATE_TEST_SUITE_P(Tcp, TcpPackets, ::testing::Values(tcp("tcp", {})), name_of_world);

class TcpShortPolls : public TransportConformance {};

TEST_P(TcpShortPolls, EndAfterOneCallAndTheOtherConnectionIsNext) {
  // A call reads the rest of a frame, and 16 KiB of those after it.
  constexpr std::size_t kFrames = 50, kBytes = 1000, kMostInACall = (16 << 10) + kBytes;
  struct Pair {
    RawSink sink_a, sink_b;
    std::unique_ptr<Connection> a, b;
  };
  std::array<Pair, 2> pairs;
  const auto frame = sealed(block_header(1), pattern(kBytes, 1));
  for (Pair& pair : pairs) connect(pair.a, pair.sink_a, pair.b, pair.sink_b);
  for (std::size_t i = 0; i < kFrames; ++i) {
    for (Pair& pair : pairs) pair.a->send({frame, {}});
  }
  while (pairs[0].a->queued_bytes() + pairs[1].a->queued_bytes() > 0) transport_a->poll();

  std::array<std::uint64_t, 2> received{};
  std::vector<std::size_t> served;
  for (int i = 0; i < kRounds && served.size() < 6; ++i) {
    if (world->transport_b().poll() == 0) world->breathe();
    for (std::size_t at = 0; at < pairs.size(); ++at) {
      const std::uint64_t now = pairs[at].b->received_bytes();
      if (now == received[at]) continue;
      EXPECT_LE(now - received[at], kMostInACall);
      received[at] = now;
      served.push_back(at);
    }
  }
  // Where both had their turn in one poll, or one had all, this is another order.
  ASSERT_EQ(served.size(), 6u);
  for (std::size_t i = 1; i < served.size(); ++i) EXPECT_NE(served[i], served[i - 1]) << i;
}

INSTANTIATE_TEST_SUITE_P(Tcp, TcpShortPolls,
                         ::testing::Values(tcp("tcp", {.clock = HurriedClock::instance()})),
                         name_of_world);

// A frame whose body lies in memory of a client who has given its pages back, where the kernel has
// no others: here they are beyond the end of a file.
class TcpLostPages : public TransportConformance {};

TEST_P(TcpLostPages, DoNotEndTheConnection) {
  constexpr std::size_t kBytes = 1 << 20;
  connect_raw();
  const Fd file(::memfd_create("arena", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(file.get(), kBytes), 0);
  void* const at = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  ASSERT_NE(at, MAP_FAILED);
  const std::span body(static_cast<std::byte*>(at), kBytes);
  const auto guard = shm::PageGuard::over(body);
  ASSERT_TRUE(guard);
  wire::FrameHeader header = block_header(1);
  header.payload_bytes = kBytes;
  wire::seal_frame_header(header);
  ASSERT_EQ(::ftruncate(file.get(), 0), 0);
  raw_a->send({std::as_bytes(std::span(&header, 1)), body});
  EXPECT_TRUE(until([&] { return raw_sink_b.payloads.size() == 1; }));
  EXPECT_TRUE(guard->has_replaced());
  const auto next = sealed(block_header(2), pattern(100, 2));
  raw_a->send({next, {}});
  EXPECT_TRUE(until([&] { return raw_sink_b.payloads.size() == 2; }));
  EXPECT_EQ(raw_sink_a.closed, 0) << raw_sink_a.closed_text;
  ::munmap(at, kBytes);
}

INSTANTIATE_TEST_SUITE_P(Tcp, TcpLostPages, ::testing::Values(tcp("tcp", {})), name_of_world);

// Until it is open or closed, or nobody believes in it any more.
void wait_for_end_of_attempt(EventLoop& loop, TcpTransport& transport, const RawSink& raw) {
  for (int i = 0; i < 30'000 && raw.opened + raw.closed == 0; ++i) {
    transport.poll();
    loop.wait(1'000'000);
  }
}

TEST(TcpTransport, ResolvesNames) {
  EventLoop loop;
  SteadyClock clock;
  RecordingAcceptorSink sink;
  auto acceptor = TcpAcceptor::create(loop, clock, {{"127.0.0.1", 0}}, sink);
  ASSERT_TRUE(acceptor) << acceptor.error().text;
  TcpTransport transport(loop, {});
  RawSink raw;
  const auto connection = transport.connect({"localhost", (*acceptor)->endpoint().port}, raw);
  wait_for_end_of_attempt(loop, transport, raw);
  EXPECT_EQ(raw.opened, 1) << raw.closed_text;
}

// Slow names of one user, as many as he likes, do not delay another's connection.
TEST(TcpTransport, ConnectsForOneUserWhileNamesOfAnotherAreSlow) {
  constexpr std::uint64_t kAlice = 1001, kBob = 1002;
  EventLoop loop;
  SteadyClock clock;
  RecordingAcceptorSink sink;
  auto acceptor = TcpAcceptor::create(loop, clock, {{"127.0.0.1", 0}}, sink);
  ASSERT_TRUE(acceptor) << acceptor.error().text;
  const auto names = std::make_shared<GatedNames>();
  NameLookups lookups(clock, [names](const std::string& name) { return names->look_up(name); });
  TcpSettings settings;
  settings.names = &lookups;
  TcpTransport transport(loop, settings);
  RawSink of_alice, of_bob;
  std::array<std::unique_ptr<Connection>, 20> slow;
  for (std::size_t i = 0; i < slow.size(); ++i) {
    slow[i] = transport.connect({"slow" + std::to_string(i), 1, kAlice}, of_alice);
  }
  const std::uint16_t port = (*acceptor)->endpoint().port;
  const auto connection = transport.connect({"quick", port, kBob}, of_bob);
  wait_for_end_of_attempt(loop, transport, of_bob);
  EXPECT_EQ(of_bob.opened, 1) << of_bob.closed_text;
  EXPECT_EQ(of_alice.opened + of_alice.closed, 0);
  names->open();
}

// It listens and takes nobody: whoever connects hears nothing.
class SilentAddress {
 public:
  SilentAddress(const char* host, std::uint16_t port) {
    const boost::asio::ip::tcp::endpoint at(boost::asio::ip::make_address(host), port);
    listener_.open(at.protocol());
    listener_.set_option(boost::asio::ip::tcp::acceptor::reuse_address(true));
    listener_.bind(at);
    listener_.listen(0);
    // More than it has room for: the kernel answers the next ones no more.
    for (int i = 0; i < 16; ++i) {
      auto& socket = waiting_.emplace_back(io_);
      socket.open(at.protocol());
      socket.non_blocking(true);
      (void)::connect(socket.native_handle(), at.data(), static_cast<socklen_t>(at.size()));
    }
  }

 private:
  boost::asio::io_context io_;
  boost::asio::ip::tcp::acceptor listener_{io_};
  std::deque<boost::asio::ip::tcp::socket> waiting_;
};

TEST(TcpTransport, AnAddressThatAnswersNothingHidesNoOtherOfItsName) {
  EventLoop loop;
  SteadyClock clock;
  RecordingAcceptorSink sink;
  auto acceptor = TcpAcceptor::create(loop, clock, {{"127.0.0.1", 0}}, sink);
  ASSERT_TRUE(acceptor) << acceptor.error().text;
  const std::uint16_t port = (*acceptor)->endpoint().port;
  const SilentAddress silent("127.0.0.2", port);
  NameLookups lookups(clock, [](const std::string&) -> NameLookups::Answer {
    return {
        {boost::asio::ip::make_address("127.0.0.2"), boost::asio::ip::make_address("127.0.0.1")},
        {}};
  });
  TcpSettings settings;
  settings.names = &lookups;
  TcpTransport transport(loop, settings);
  RawSink raw;
  const auto connection = transport.connect({"both", port}, raw);
  // The kernel would give the first address up after minutes, beyond this patience.
  wait_for_end_of_attempt(loop, transport, raw);
  EXPECT_EQ(raw.opened, 1) << raw.closed_text;
}

// Of all TCP connections of this process: how many, and how many send small frames at once.
struct Connections {
  int all = 0, without_delay = 0;
};
Connections connections() {
  Connections seen;
  for (int fd = 0; fd < 256; ++fd) {
    sockaddr_storage address{};
    socklen_t bytes = sizeof(address);
    sockaddr* const generic = static_cast<sockaddr*>(static_cast<void*>(&address));
    if (::getpeername(fd, generic, &bytes) != 0 || address.ss_family != AF_INET) continue;
    int no_delay = 0;
    bytes = sizeof(no_delay);
    EXPECT_EQ(::getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &no_delay, &bytes), 0);
    ++seen.all;
    seen.without_delay += no_delay != 0 ? 1 : 0;
  }
  return seen;
}

// A grant of a hundred bytes must not wait for an acknowledgement (Nagle's algorithm), on either
// end.
TEST(TcpTransport, SendsSmallFramesAtOnce) {
  EventLoop loop;
  SteadyClock clock;
  RecordingAcceptorSink sink;
  auto acceptor = TcpAcceptor::create(loop, clock, {{"127.0.0.1", 0}}, sink);
  ASSERT_TRUE(acceptor) << acceptor.error().text;
  TcpTransport transport(loop, {});
  RawSink raw;
  const auto connection = transport.connect((*acceptor)->endpoint(), raw);
  Connections seen;
  for (int i = 0; i < 30'000 && (raw.opened == 0 || seen.all < 2); ++i) {
    transport.poll();
    (*acceptor)->poll();
    loop.wait(1'000'000);
    seen = connections();
  }
  ASSERT_EQ(raw.opened, 1) << raw.closed_text;
  EXPECT_EQ(seen.all, 2);
  EXPECT_EQ(seen.without_delay, 2);
}

TEST(TcpTransport, ANameThatDoesNotExistIsUnreachable) {
  EventLoop loop;
  TcpTransport transport(loop, {});
  RawSink raw;
  const auto connection = transport.connect({"no such host", 1}, raw);
  for (int i = 0; i < 30'000 && raw.closed == 0; ++i) {
    transport.poll();
    loop.wait(1'000'000);
  }
  EXPECT_EQ(raw.closed_reason, Errc::unreachable);
  EXPECT_NE(raw.closed_text.find("no such host"), std::string::npos) << raw.closed_text;
}

// To be told that a peer is refused takes so long.
struct SlowAcceptorSink final : AcceptorSink {
  explicit SlowAcceptorSink(ManualClock& clock_in) : clock(clock_in) {}
  void on_incoming(std::unique_ptr<Incoming> incoming, const wire::FrameHeader&,
                   const wire::HelloBody&) override {
    offered.push_back(std::move(incoming));
  }
  void on_refused(const std::string&, Errc reason, const char* text) override {
    refused.push_back({reason, text});
    clock.advance_ns(refusal_ns);
  }

  ManualClock& clock;
  std::uint64_t refusal_ns = 0;
  std::vector<std::pair<Errc, std::string>> refused;
  std::vector<std::unique_ptr<Incoming>> offered;
};

// Peers that connect and say what the test wants.
class TcpAcceptorPlaces : public ::testing::Test {
 protected:
  void SetUp() override {
    AcceptorSettings settings;
    settings.max_unfinished = 4;
    auto made = TcpAcceptor::create(loop_, clock_, {{"127.0.0.1", 0}, settings}, sink_);
    ASSERT_TRUE(made) << made.error().text;
    acceptor_ = std::move(*made);
  }
  void connect_with(std::string_view words) {
    boost::asio::ip::tcp::socket& socket = peers_.emplace_back(io_);
    socket.connect({boost::asio::ip::address_v4::loopback(), acceptor_->endpoint().port});
    if (!words.empty()) socket.send(boost::asio::buffer(words));
  }
  static std::string hello() {
    wire::HelloBody body;
    body.node = {1, 1};
    body.session = 1;
    const wire::HelloFrame frame = wire::make_hello(wire::FrameKind::hello, body);
    return {static_cast<const char*>(static_cast<const void*>(&frame)), sizeof frame};
  }
  // Descriptors that this process has of connections to the acceptor, at its end.
  int accepted() const {
    int count = 0;
    for (int fd = 0; fd < 1024; ++fd) {
      sockaddr_in own{}, peer{};
      socklen_t bytes = sizeof own;
      if (::getsockname(fd, generic(own), &bytes) != 0 || own.sin_family != AF_INET) continue;
      bytes = sizeof peer;
      if (::getpeername(fd, generic(peer), &bytes) != 0) continue;
      count += own.sin_port == htons(acceptor_->endpoint().port) ? 1 : 0;
    }
    return count;
  }
  static sockaddr* generic(sockaddr_in& address) {
    return static_cast<sockaddr*>(static_cast<void*>(&address));
  }
  void poll() {
    acceptor_->poll();
    loop_.wait(1'000'000);
  }

  ManualClock clock_;
  EventLoop loop_;
  boost::asio::io_context io_;
  std::deque<boost::asio::ip::tcp::socket> peers_;
  SlowAcceptorSink sink_{clock_};
  std::unique_ptr<TcpAcceptor> acceptor_;
};

TEST_F(TcpAcceptorPlaces, NeverHoldMoreDescriptorsThanTheyMay) {
  constexpr int kPeers = 40;
  for (int i = 0; i < kPeers; ++i) connect_with("");
  int most = 0;
  for (int i = 0; i < 30'000 && sink_.refused.size() < kPeers - 4; ++i) {
    poll();
    most = std::max(most, accepted());
  }
  EXPECT_EQ(sink_.refused.size(), kPeers - 4u);
  EXPECT_EQ(most, 4);
}

// A node that says hello is not kept waiting by those who came before it and say nothing.
TEST_F(TcpAcceptorPlaces, AreTakenByAWholeQueueInAFewPolls) {
  constexpr int kSilent = 200;
  for (int i = 0; i < kSilent; ++i) connect_with("");
  connect_with(hello());
  for (int i = 0; i < 30'000 && accepted() == 0; ++i) poll();  // until the kernel tells of them
  for (int i = 0; i < 5; ++i) poll();
  EXPECT_EQ(sink_.refused.size(), kSilent - 4u);
  EXPECT_EQ(sink_.offered.size(), 1u);
  EXPECT_EQ(accepted(), 5);
}

TEST_F(TcpAcceptorPlaces, AreTakenAsThereIsTimeFor) {
  for (int i = 0; i < 4; ++i) connect_with("");
  for (int i = 0; i < 30'000 && accepted() < 4; ++i) poll();
  ASSERT_EQ(accepted(), 4);
  for (int i = 0; i < 5; ++i) connect_with("");
  sink_.refusal_ns = 600'000;  // and two of these are a slice
  for (int i = 0; i < 30'000 && sink_.refused.empty(); ++i) poll();
  EXPECT_EQ(sink_.refused.size(), 2u);
  acceptor_->poll();
  EXPECT_EQ(sink_.refused.size(), 4u);
}

// Hand-shakes of many peers at once do not keep the thread.
TEST_F(TcpAcceptorPlaces, AreExaminedInTurnAsThereIsTimeFor) {
  constexpr int kPeers = 4;
  for (int i = 0; i < kPeers; ++i) connect_with("");
  for (int i = 0; i < 30'000 && accepted() < kPeers; ++i) poll();
  ASSERT_EQ(accepted(), kPeers);
  for (auto& peer : peers_) peer.send(boost::asio::buffer(std::string_view("\x16")));
  sink_.refusal_ns = 1'000'000;  // and two of these are a slice
  EXPECT_GT(acceptor_->poll(), 0);
  EXPECT_EQ(sink_.refused.size(), 2u);
  acceptor_->poll();
  EXPECT_EQ(sink_.refused.size(), 4u);
}

// A peer that is refused may read why for a moment; one that stays longer is not waited for.
TEST_F(TcpAcceptorPlaces, AreFreeAgainWhenARefusedPeerDoesNotLeave) {
  connect_with("\x16");  // TLS, where plaintext is spoken
  for (int i = 0; i < 30'000 && sink_.refused.empty(); ++i) poll();
  ASSERT_EQ(sink_.refused.size(), 1u);
  EXPECT_EQ(accepted(), 1);
  clock_.advance_ns(2'000'000'000);
  poll();
  EXPECT_EQ(accepted(), 0);
  EXPECT_EQ(sink_.refused.size(), 1u);
}

TEST_F(TcpAcceptorPlaces, OfRefusedPeersAreTakenByOthers) {
  constexpr int kPeers = 40;
  for (int i = 0; i < kPeers; ++i) connect_with("\x16");
  int most = 0;
  for (int i = 0; i < 30'000 && sink_.refused.size() < kPeers; ++i) {
    poll();
    most = std::max(most, accepted());
  }
  EXPECT_EQ(sink_.refused.size(), std::size_t{kPeers});
  EXPECT_LE(most, 4);
}

TEST_F(TcpAcceptorPlaces, OfUsersOfThisMachineAreChargedToTheirOwners) {
  TcpSettings settings;
  settings.loopback_only = true;
  settings.account_of = [](std::uint32_t user) { return user == ::getuid() ? 4242u : user; };
  auto made = TcpAcceptor::create(loop_, clock_, {{"127.0.0.1", 0}, {}, settings}, sink_);
  ASSERT_TRUE(made) << made.error().text;
  acceptor_ = std::move(*made);
  connect_with(hello());
  for (int i = 0; i < 30'000 && sink_.offered.empty(); ++i) poll();
  ASSERT_EQ(sink_.offered.size(), 1u);
  EXPECT_EQ(sink_.offered[0]->source, "user 4242");
}

TEST(TcpAcceptor, APortInUseIsAnErrorWithText) {
  EventLoop loop;
  SteadyClock clock;
  RecordingAcceptorSink sink;
  auto first = TcpAcceptor::create(loop, clock, {{"127.0.0.1", 0}}, sink);
  ASSERT_TRUE(first);
  auto second = TcpAcceptor::create(loop, clock, {(*first)->endpoint()}, sink);
  ASSERT_FALSE(second);
  EXPECT_NE(second.error().text.find("127.0.0.1"), std::string::npos) << second.error().text;
}

}  // namespace
}  // namespace tern::net
