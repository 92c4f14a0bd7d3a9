// The transport conformance suite over verbs, real ones or the mock's: two transports on one
// device. And what a lane relies on beside it: that it is woken.

#include <functional>
#include <memory>
#include <string_view>
#include <thread>

#include "net/tcp/tcp_transport.h"
#include "rdma/rdma_transport.h"
#include "tests/net/transport_conformance.h"
#include "tests/rdma/verbs_under_test.h"

namespace tern::net {
namespace {

class RdmaWorld final : public ConformanceWorld {
 public:
  explicit RdmaWorld(const std::function<void(rdma::RdmaSettings&)>& adjust) {
    if (adjust) adjust(settings_);
  }
  // That the suite ran on verbs and not beside them.
  ~RdmaWorld() override {
    EXPECT_EQ(a_.counters().declined + b_.counters().declined, 0u);
    EXPECT_EQ(a_.counters().failovers + b_.counters().failovers, 0u);
  }
  Transport& transport_a() override { return a_; }
  Transport& transport_b() override { return b_; }
  std::unique_ptr<Acceptor> make_acceptor(const Clock& clock, const AcceptorSettings& settings,
                                          AcceptorSink& sink) override {
    auto acceptor = TcpAcceptor::create(loop_b_, clock, {{"127.0.0.1", 0}, settings}, sink);
    EXPECT_TRUE(acceptor) << acceptor.error().text;
    return acceptor ? std::move(*acceptor) : nullptr;
  }
  void breathe() override {
    if (a_.prepare_sleep() && b_.prepare_sleep()) {
      loop_a_.wait(500'000);
    } else {
      std::this_thread::yield();  // the device may need this core
    }
    loop_b_.poll();
  }
  // B as a lane before it sleeps: it looks until it may.
  void put_b_to_sleep() {
    do b_.poll();
    while (!b_.prepare_sleep());
  }
  // Whether anything has woken it within a millisecond. It looks at nothing by itself.
  bool b_is_woken() { return loop_b_.wait(1'000'000) > 0; }
  std::uint64_t messages_of_a() const { return a_.data_path_counters().messages_sent; }

 private:
  SteadyClock clock_;
  std::unique_ptr<rdma::VerbsUnderTest> verbs_ = rdma::VerbsUnderTest::make();
  rdma::RdmaSettings settings_ = verbs_->settings();
  EventLoop loop_a_, loop_b_;
  TcpTransport tcp_a_{loop_a_, {}};
  TcpTransport tcp_b_{loop_b_, {}};
  rdma::RdmaTransport a_{tcp_a_, loop_a_, clock_, settings_};
  rdma::RdmaTransport b_{tcp_b_, loop_b_, clock_, settings_};
};

ConformanceParam rdma_param(const char* name,
                            const std::function<void(rdma::RdmaSettings&)>& adjust = {}) {
  return {name, [adjust] { return std::make_unique<RdmaWorld>(adjust); }};
}

void few_small_slots(rdma::RdmaSettings& settings) {
  settings.receive_slots = 8;
  settings.slot_bytes = 4096;
}

std::string name_of(const ::testing::TestParamInfo<ConformanceParam>& each) {
  return each.param.name;
}

// Few and small slots, so that frames end everywhere and senders wait.
INSTANTIATE_TEST_SUITE_P(Rdma, TransportConformance,
                         ::testing::Values(rdma_param("rdma"),
                                           rdma_param("rdma_small_slots", few_small_slots)),
                         name_of);

// Over a queue pair, past everything that sets it up.
class RdmaFrames : public TransportConformance {
 protected:
  void SetUp() override {
    TransportConformance::SetUp();
    connect_raw();
    ASSERT_TRUE(until([&] { return raw_a && raw_b && is_rdma(*raw_a) && is_rdma(*raw_b); }));
    for (int quiet = 0; quiet < 20; quiet = step() == 0 ? quiet + 1 : 0) world->breathe();
  }
  static bool is_rdma(const Connection& connection) {
    return std::string_view(connection.carriage().name) == "rdma";
  }
  RdmaWorld& rdma() { return static_cast<RdmaWorld&>(*world); }
  void send(const std::vector<std::byte>& frame) {
    raw_a->send({std::span(frame).first(wire::kFrameHeaderBytes),
                 std::span(frame).subspan(wire::kFrameHeaderBytes)});
  }
};

// A sender marks what must wake its peer: a frame's end, and parts of a long frame before the peer
// has no slot left. Without a mark B sleeps on, and A gets no credit.
TEST_P(RdmaFrames, WakeAReceiverThatSleeps) {
  constexpr int kPatienceMs = 60'000;
  for (const std::size_t bytes : {1u, 300u, 5000u, 60'000u, 262'144u, 1'000'000u}) {
    const auto frame = sealed(block_header(bytes), pattern(bytes, bytes));
    const std::size_t had = raw_sink_b.payloads.size();
    rdma().put_b_to_sleep();
    send(frame);
    for (int ms = 0; raw_sink_b.payloads.size() == had && ms < kPatienceMs; ++ms) {
      transport_a->poll();
      if (rdma().b_is_woken()) rdma().put_b_to_sleep();
    }
    ASSERT_EQ(raw_sink_b.payloads.size(), had + 1) << "it sleeps through " << bytes << " bytes";
    EXPECT_EQ(raw_sink_b.payloads.back(), pattern(bytes, bytes));
    // Its memory is free when all has completed here.
    ASSERT_TRUE(until([&] { return raw_a->queued_bytes() == 0; }));
  }
}

INSTANTIATE_TEST_SUITE_P(Rdma, RdmaFrames,
                         ::testing::Values(rdma_param("rdma"),
                                           rdma_param("rdma_small_slots", few_small_slots)),
                         name_of);

class RdmaMessages : public RdmaFrames {};

// A header more than four slots' worth of body is no fifth message.
TEST_P(RdmaMessages, OfAChunkAreAsFewAsSlotsAllow) {
  const auto frame = sealed(block_header(1), pattern(256 << 10, 1));
  const std::uint64_t before = rdma().messages_of_a();
  send(frame);
  ASSERT_TRUE(until([&] { return raw_sink_b.payloads.size() == 1; }));
  EXPECT_EQ(rdma().messages_of_a() - before, 4u);
}

INSTANTIATE_TEST_SUITE_P(Rdma, RdmaMessages, ::testing::Values(rdma_param("rdma")), name_of);

}  // namespace
}  // namespace tern::net
