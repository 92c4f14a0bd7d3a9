// The conformance suite over TLS, with certificates and with a cluster key.

#include "tests/net/tcp_world.h"
#include "tests/net/tls_files.h"

namespace tern::net {
namespace {

struct Sources {
  std::unique_ptr<TlsSource> a, b;
};

class TlsWorld final : public ConformanceWorld {
 public:
  TlsWorld(Sources sources, TcpSettings settings)
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
                      tls("certificates_small_buffers", with_certificates,
                          {.send_buffer_bytes = 16384, .receive_buffer_bytes = 16384})),
    name_of_world);

}  // namespace
}  // namespace tern::net
