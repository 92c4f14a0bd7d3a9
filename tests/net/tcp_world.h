#pragma once

// Two daemons' transports over real sockets of this machine, for the conformance suite.

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "net/tcp/tcp_transport.h"
#include "tests/net/transport_conformance.h"

namespace tern::net {

// Every look passes more than a poll may take: each poll ends with its second look.
class HurriedClock final : public Clock {
 public:
  static const Clock* instance() {
    static HurriedClock clock;
    return &clock;
  }
  std::uint64_t now_ns() const noexcept override { return now_ns_ += 10'000'000; }

 private:
  mutable std::atomic<std::uint64_t> now_ns_{1};
};

class TcpWorld : public ConformanceWorld {
 public:
  explicit TcpWorld(const TcpSettings& settings) : TcpWorld(settings, settings) {}
  TcpWorld(const TcpSettings& settings_a, const TcpSettings& settings_b)
      : settings_b_(settings_b), a_(loop_a_, settings_a), b_(loop_b_, settings_b) {}
  Transport& transport_a() override { return a_; }
  Transport& transport_b() override { return b_; }
  std::unique_ptr<Acceptor> make_acceptor(const Clock& clock, const AcceptorSettings& settings,
                                          AcceptorSink& sink) override {
    auto acceptor =
        TcpAcceptor::create(loop_b_, clock, {{"127.0.0.1", 0}, settings, settings_b_}, sink);
    EXPECT_TRUE(acceptor) << acceptor.error().text;
    return acceptor ? std::move(*acceptor) : nullptr;
  }
  void breathe() override {
    loop_a_.wait(500'000);
    loop_b_.poll();
  }

 private:
  TcpSettings settings_b_;
  EventLoop loop_a_, loop_b_;
  TcpTransport a_, b_;
};

inline std::string name_of_world(const ::testing::TestParamInfo<ConformanceParam>& each) {
  return each.param.name;
}

}  // namespace tern::net
