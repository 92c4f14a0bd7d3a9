// The conformance suite over TLS, with certificates and with a cluster key.

#include "tests/net/sent_over_tcp.h"
#include "tests/net/tcp_world.h"
#include "tests/net/tls_files.h"

namespace tern::net {
namespace {

struct Sources {
  std::unique_ptr<TlsSource> a, b;
};

class TlsWorld final : public ConformanceWorld {
 public:
  TlsWorld(Sources sources, const TcpSettings& settings)
      : sources_(std::move(sources)),
        world_(with(settings, sources_.a.get()), with(settings, sources_.b.get())) {}
  Transport& transport_a() override { return world_.transport_a(); }
  Transport& transport_b() override { return world_.transport_b(); }
  std::unique_ptr<Acceptor> make_acceptor(const Clock& clock, const AcceptorSettings& settings,
                                          AcceptorSink& sink) override {
    return world_.make_acceptor(clock, settings, sink);
  }
  void breathe() override { world_.breathe(); }

 private:
  static TcpSettings with(TcpSettings settings, const TlsSource* tls) {
    settings.tls = tls;
    return settings;
  }
  Sources sources_;
  TcpWorld world_;
};

Sources with_certificates() {
  TlsFiles files;
  return {TlsFiles::source(TlsContext::with_certificates(files.node("one", {"node-a"}))),
          TlsFiles::source(TlsContext::with_certificates(files.node("one", {"127.0.0.1"})))};
}

Sources with_key() {
  TlsFiles files;
  const std::string key = files.cluster_key("key");
  return {TlsFiles::source(TlsContext::with_cluster_keys(key)),
          TlsFiles::source(TlsContext::with_cluster_keys(key))};
}

ConformanceParam tls(const char* name, Sources (*sources)(), const TcpSettings& settings = {}) {
  return {name, [=] { return std::make_unique<TlsWorld>(sources(), settings); }};
}

INSTANTIATE_TEST_SUITE_P(
    Tls, TransportConformance,
    ::testing::Values(tls("certificates", with_certificates), tls("key", with_key),
                      tls("certificates_small_turns", with_certificates, {.bytes_per_poll = 5000}),
                      tls("certificates_short_polls", with_certificates,
                          {.clock = HurriedClock::instance()}),
                      tls("certificates_small_buffers", with_certificates,
                          {.send_buffer_bytes = 16384, .receive_buffer_bytes = 16384})),
    name_of_world);

class TlsRecords : public TransportConformance {};

// Each record has 22 bytes of its own, and costs as much as it does to encrypt some KiB.
TEST_P(TlsRecords, AreSharedBySmallFrames) {
  constexpr std::uint64_t kRecordBytes = 22, kFrames = 100, kHead = 90;
  connect_raw();
  std::vector<std::vector<std::byte>> frames;
  std::uint64_t bytes = 0;
  for (std::uint64_t i = 0; i < kFrames; ++i) {
    frames.push_back(sealed(block_header(i), pattern(60, i)));
    bytes += frames.back().size();
  }
  const SentOverTcp before = sent_over_tcp();
  for (const auto& frame : frames) {
    raw_a->send({std::span(frame).first(kHead), std::span(frame).subspan(kHead)});
  }
  ASSERT_TRUE(until([&] { return raw_sink_b.payloads.size() == kFrames; }));
  const std::uint64_t sent = sent_over_tcp().bytes - before.bytes;
  EXPECT_GE(sent, bytes + kRecordBytes);
  EXPECT_LT(sent, bytes + kRecordBytes * kFrames / 4);
  for (std::uint64_t i = 0; i < kFrames; ++i) EXPECT_EQ(raw_sink_b.payloads[i], pattern(60, i));
}

INSTANTIATE_TEST_SUITE_P(Tls, TlsRecords, ::testing::Values(tls("certificates", with_certificates)),
                         name_of_world);

}  // namespace
}  // namespace tern::net
