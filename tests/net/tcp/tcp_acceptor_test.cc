#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "net/tcp/tcp_transport.h"
#include "tests/net/transport_conformance.h"

namespace tern::net {
namespace {

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
