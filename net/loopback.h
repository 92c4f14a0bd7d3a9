#pragma once

// Daemons in one process and one thread: frames are copied from sender to receiver in a fixed
// order, so that a run depends on its inputs only. For tests and the simulator.

#include <cstdint>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "net/transport.h"

namespace tern::net {

// The world that loopback transports share. Must outlive them and everything made by them.
class LoopbackNetwork {
 public:
  LoopbackNetwork();
  ~LoopbackNetwork();
  LoopbackNetwork(const LoopbackNetwork&) = delete;
  LoopbackNetwork& operator=(const LoopbackNetwork&) = delete;

  // All connections from and to the endpoint close with io_error and what is under way is lost;
  // connecting to and from it is refused, until revive().
  void kill(const Endpoint& endpoint);
  void revive(const Endpoint& endpoint);
  // While partitioned nothing moves between the two, and connecting neither succeeds nor fails.
  void set_partitioned(const Endpoint& a, const Endpoint& b, bool partitioned);

  struct Impl;
  Impl& impl() noexcept { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

// `self` is where the daemon that this transport belongs to listens; lanes of one daemon share it.
class LoopbackTransport final : public Transport {
 public:
  // Frames that one poll() delivers at most.
  static constexpr int kFramesPerPoll = 64;

  LoopbackTransport(LoopbackNetwork& network, Endpoint self);
  ~LoopbackTransport() override;

  const char* name() const noexcept override { return "loopback"; }
  std::unique_ptr<Connection> connect(const Endpoint& endpoint, ConnectionSink& sink) override;
  std::unique_ptr<Connection> adopt(std::unique_ptr<Incoming> incoming,
                                    ConnectionSink& sink) override;
  int poll() override;

  struct Half;

 private:
  LoopbackNetwork::Impl& network_;
  Endpoint self_;
  std::vector<std::shared_ptr<Half>> halves_;
  std::size_t next_ = 0;  // where the next round begins
};

class LoopbackAcceptor final : public Acceptor {
 public:
  // REQUIRES: no other acceptor lives on this endpoint.
  LoopbackAcceptor(LoopbackNetwork& network, const Clock& clock, Listening listening,
                   AcceptorSink& sink);
  ~LoopbackAcceptor() override;

  Endpoint endpoint() const override;
  int poll() override;

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace tern::net
