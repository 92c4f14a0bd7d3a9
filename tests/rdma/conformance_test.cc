// The transport conformance suite over verbs: two transports on one device.

#include "net/tcp/tcp_transport.h"
#include "rdma/rdma_transport.h"
#include "tests/net/transport_conformance.h"

namespace tern::net {
namespace {

class RdmaWorld final : public ConformanceWorld {
 public:
  explicit RdmaWorld(const rdma::RdmaSettings& settings) : settings_(settings) {}
  // That the suite ran on verbs and not beside them.
  ~RdmaWorld() override {
    EXPECT_EQ(a_.counters().declined + b_.counters().declined, 0u);
    EXPECT_EQ(a_.counters().failovers + b_.counters().failovers, 0u);
  }
  Transport& transport_a() override { return a_; }
  Transport& transport_b() override { return b_; }
  std::unique_ptr<Acceptor> make_acceptor(const Clock& clock, const AcceptorSettings& settings,
                                          AcceptorSink& sink) override {
    auto acceptor = TcpAcceptor::create(loop_b_, {"127.0.0.1", 0}, clock, settings, {}, sink);
    EXPECT_TRUE(acceptor) << acceptor.error().text;
    return acceptor ? std::move(*acceptor) : nullptr;
  }
  void breathe() override {
    if (a_.prepare_sleep() && b_.prepare_sleep()) loop_a_.wait(500'000);
    loop_b_.poll();
  }

 private:
  SteadyClock clock_;
  rdma::RdmaSettings settings_;
  EventLoop loop_a_, loop_b_;
  TcpTransport tcp_a_{loop_a_, {}};
  TcpTransport tcp_b_{loop_b_, {}};
  rdma::RdmaTransport a_{tcp_a_, loop_a_, clock_, settings_, 0};
  rdma::RdmaTransport b_{tcp_b_, loop_b_, clock_, settings_, 0};
};

ConformanceParam rdma_param(const char* name, const rdma::RdmaSettings& settings) {
  return {name, [settings] { return std::make_unique<RdmaWorld>(settings); }};
}

rdma::RdmaSettings few_small_slots() {
  rdma::RdmaSettings settings;
  settings.receive_slots = 8;
  settings.slot_bytes = 4096;
  return settings;
}

std::string name_of(const ::testing::TestParamInfo<ConformanceParam>& each) {
  return each.param.name;
}

// Few and small slots, so that frames end everywhere and senders wait.
INSTANTIATE_TEST_SUITE_P(Rdma, TransportConformance,
                         ::testing::Values(rdma_param("rdma", {}),
                                           rdma_param("rdma_small_slots", few_small_slots())),
                         name_of);

}  // namespace
}  // namespace tern::net
