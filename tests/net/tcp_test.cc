#include "net/tcp/tcp_transport.h"
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
                      tcp("tcp_small_buffers",
                          {.send_buffer_bytes = 16384, .receive_buffer_bytes = 16384})),
    name_of_world);

TEST(TcpTransport, ResolvesNames) {
  EventLoop loop;
  SteadyClock clock;
  RecordingAcceptorSink sink;
  auto acceptor = TcpAcceptor::create(loop, {"127.0.0.1", 0}, clock, {}, {}, sink);
  ASSERT_TRUE(acceptor) << acceptor.error().text;
  TcpTransport transport(loop, {});
  RawSink raw;
  const auto connection = transport.connect({"localhost", (*acceptor)->endpoint().port}, raw);
  for (int i = 0; i < 30'000 && raw.opened + raw.closed == 0; ++i) {
    transport.poll();
    loop.wait(1'000'000);
  }
  EXPECT_EQ(raw.opened, 1) << raw.closed_text;
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

TEST(TcpAcceptor, APortInUseIsAnErrorWithText) {
  EventLoop loop;
  SteadyClock clock;
  RecordingAcceptorSink sink;
  auto first = TcpAcceptor::create(loop, {"127.0.0.1", 0}, clock, {}, {}, sink);
  ASSERT_TRUE(first);
  auto second = TcpAcceptor::create(loop, (*first)->endpoint(), clock, {}, {}, sink);
  ASSERT_FALSE(second);
  EXPECT_NE(second.error().text.find("127.0.0.1"), std::string::npos) << second.error().text;
}

}  // namespace
}  // namespace tern::net
