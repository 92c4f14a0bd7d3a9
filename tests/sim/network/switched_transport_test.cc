#include "switched_transport.h"

#include "tests/net/transport_conformance.h"

namespace tern::net {
namespace {

// The network's time is that of what carries frames, as it is over sockets: it passes while nothing
// else happens.
class SwitchedWorld final : public ConformanceWorld {
 public:
  explicit SwitchedWorld(const sim::SwitchShape& shape) : network_(shape) {}

  Transport& transport_a() override { return a_; }
  Transport& transport_b() override { return b_; }
  std::unique_ptr<Acceptor> make_acceptor(const Clock& clock, const AcceptorSettings& settings,
                                          AcceptorSink& sink) override {
    return std::make_unique<sim::SwitchedAcceptor>(network_, Listening{{"b", 1}, settings},
                                                   sim::SwitchedAcceptor::Owner{clock, sink, {}});
  }
  void breathe() override { network_.run_until(network_.now_ns() + 1'000'000); }

 private:
  sim::SwitchedNetwork network_;
  sim::SwitchedTransport a_{network_, {"a", 1}, {}};
  sim::SwitchedTransport b_{network_, {"b", 1}, {}};
};

std::string name_of(const ::testing::TestParamInfo<ConformanceParam>& each) {
  return each.param.name;
}

ConformanceParam with_buffer(const char* name, std::uint64_t bytes) {
  // The line down is half as fast as the line up.
  const sim::SwitchShape shape{{1'000'000'000, 500'000'000, 5'000}, bytes};
  return {name, [shape] { return std::make_unique<SwitchedWorld>(shape); }};
}

// With a buffer of ten packets connections lose some of what they send.
INSTANTIATE_TEST_SUITE_P(Switched, TransportConformance,
                         ::testing::Values(with_buffer("deep", 16 << 20),
                                           with_buffer("shallow", 15'000)),
                         name_of);

}  // namespace
}  // namespace tern::net
