#include "net/tcp/tcp_transport.h"
#include "tests/net/transport_conformance.h"

namespace tern::net {
namespace {

class TcpWorld final : public ConformanceWorld {
 public:
  explicit TcpWorld(const TcpSettings& settings) : settings_(settings) {}
  Transport& transport_a() override { return a_; }
  Transport& transport_b() override { return b_; }
  std::unique_ptr<Acceptor> make_acceptor(const Clock& clock, const AcceptorSettings& settings,
                                          AcceptorSink& sink) override {
    auto acceptor =
        TcpAcceptor::create(loop_b_, {"127.0.0.1", 0}, clock, settings, settings_, sink);
    EXPECT_TRUE(acceptor) << acceptor.error().text;
    return acceptor ? std::move(*acceptor) : nullptr;
  }
  void breathe() override {
    loop_a_.wait(500'000);
    loop_b_.poll();
  }

 private:
  TcpSettings settings_;
  EventLoop loop_a_, loop_b_;
  TcpTransport a_{loop_a_, settings_};
  TcpTransport b_{loop_b_, settings_};
};

ConformanceParam tcp(const char* name, const TcpSettings& settings) {
  return {name, [settings] { return std::make_unique<TcpWorld>(settings); }};
}

std::string name_of(const ::testing::TestParamInfo<ConformanceParam>& each) {
  return each.param.name;
}

// Small buffers and turns, so that reads and writes end in every place.
INSTANTIATE_TEST_SUITE_P(
    Tcp, TransportConformance,
    ::testing::Values(tcp("tcp", {}), tcp("tcp_small_turns", {.bytes_per_poll = 5000}),
                      tcp("tcp_small_buffers",
                          {.send_buffer_bytes = 16384, .receive_buffer_bytes = 16384})),
    name_of);

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
