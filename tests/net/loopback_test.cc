#include "net/loopback.h"

#include "tests/net/transport_conformance.h"

namespace tern::net {
namespace {

class LoopbackWorld : public ConformanceWorld {
 public:
  Transport& transport_a() override { return a_; }
  Transport& transport_b() override { return b_; }
  std::unique_ptr<Acceptor> make_acceptor(const Clock& clock, const AcceptorSettings& settings,
                                          AcceptorSink& sink) override {
    return std::make_unique<LoopbackAcceptor>(network_, clock, Listening{{"b", 1}, settings}, sink);
  }
  void breathe() override {}

 private:
  LoopbackNetwork network_;
  LoopbackTransport a_{network_, {"a", 1}};
  LoopbackTransport b_{network_, {"b", 1}};
};

class FaultyWorld final : public LoopbackWorld {
 public:
  Transport& transport_a() override { return faulty_a_; }
  Transport& transport_b() override { return faulty_b_; }

 private:
  ManualClock clock_;  // nothing is delayed
  FaultyTransport faulty_a_{LoopbackWorld::transport_a(), clock_, {}, 1};
  FaultyTransport faulty_b_{LoopbackWorld::transport_b(), clock_, {}, 2};
};

std::string name_of(const ::testing::TestParamInfo<ConformanceParam>& each) {
  return each.param.name;
}

template <typename World>
ConformanceParam in_process(const char* name) {
  return {name, [] { return std::make_unique<World>(); }};
}

INSTANTIATE_TEST_SUITE_P(InProcess, TransportConformance,
                         ::testing::Values(in_process<LoopbackWorld>("loopback"),
                                           in_process<FaultyWorld>("faulty")),
                         name_of);

}  // namespace
}  // namespace tern::net
