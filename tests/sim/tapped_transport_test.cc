#include "tests/sim/tapped_transport.h"

#include "net/loopback.h"
#include "tests/net/transport_conformance.h"

namespace tern::net {
namespace {

class TappedWorld final : public ConformanceWorld {
 public:
  Transport& transport_a() override { return tapped_a_; }
  Transport& transport_b() override { return tapped_b_; }
  std::unique_ptr<Acceptor> make_acceptor(const Clock& clock, const AcceptorSettings& settings,
                                          AcceptorSink& sink) override {
    return std::make_unique<LoopbackAcceptor>(network_, clock, Listening{{"b", 1}, settings}, sink);
  }
  void breathe() override {}

 private:
  LoopbackNetwork network_;
  LoopbackTransport a_{network_, {"a", 1}};
  LoopbackTransport b_{network_, {"b", 1}};
  sim::Tap tap_ = [](const OutgoingFrame&) {};
  sim::TappedTransport tapped_a_{a_, tap_, true};
  sim::TappedTransport tapped_b_{b_, tap_, false};
};

INSTANTIATE_TEST_SUITE_P(Simulated, TransportConformance,
                         ::testing::Values(ConformanceParam{
                             "tapped", [] { return std::make_unique<TappedWorld>(); }}),
                         [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace tern::net
