#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <deque>

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

// The first look at the clock, after the first call, is when the slice begins.
TEST_P(TcpShortPolls, EndAfterTwoCallsAndTheOtherConnectionIsNext) {
  // A call reads the rest of a frame, and 16 KiB of those after it.
  constexpr std::size_t kFrames = 100, kBytes = 1000, kMostInACall = (16 << 10) + kBytes;
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
      EXPECT_LE(now - received[at], 2 * kMostInACall);
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

class CountedClock final : public Clock {
 public:
  std::uint64_t now_ns() const noexcept override { return 1'000'000'000 + looks++; }
  mutable std::atomic<std::uint64_t> looks{0};
};

// A look costs as much as tens or hundreds of instructions, and a lane polls more often than it
// finds something.
TEST(TcpTransport, LooksAtNoClockWhereThereIsNothingToDo) {
  EventLoop loop;
  SteadyClock clock;
  RecordingAcceptorSink sink;
  auto acceptor = TcpAcceptor::create(loop, clock, {{"127.0.0.1", 0}}, sink);
  ASSERT_TRUE(acceptor) << acceptor.error().text;
  CountedClock counted;
  TcpTransport transport(loop, {.clock = &counted});
  RawSink first, second;
  const auto one = transport.connect((*acceptor)->endpoint(), first);
  const auto other = transport.connect((*acceptor)->endpoint(), second);
  for (int i = 0; i < 30'000 && first.opened + second.opened < 2; ++i) {
    transport.poll();
    (*acceptor)->poll();
    loop.wait(1'000'000);
  }
  ASSERT_EQ(first.opened + second.opened, 2) << first.closed_text << second.closed_text;
  while (transport.poll() > 0) {
  }
  counted.looks = 0;
  transport.poll();
  transport.flush();
  EXPECT_EQ(counted.looks, 0u);
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

}  // namespace
}  // namespace tern::net
