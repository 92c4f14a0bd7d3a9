#pragma once

// What carries frames over a SwitchedNetwork: as net/tcp, with the network's model in place of
// sockets. Its bytes are the real ones, so that whole daemons run on it.

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "net/transport.h"
#include "switched_network.h"

namespace tern::sim {

// `self` is where the daemon that this transport belongs to listens; lanes of one daemon share it.
class SwitchedTransport final : public net::Transport {
 public:
  // Frames that one poll() delivers at most.
  static constexpr int kFramesPerPoll = 64;

  // `wake`: poll() has something to do. May be empty.
  SwitchedTransport(SwitchedNetwork& network, net::Endpoint self, std::function<void()> wake);
  ~SwitchedTransport() override;

  const char* name() const noexcept override { return "switched"; }
  std::unique_ptr<net::Connection> connect(const net::Endpoint& endpoint,
                                           net::ConnectionSink& sink) override;
  std::unique_ptr<net::Connection> adopt(std::unique_ptr<net::Incoming> incoming,
                                         net::ConnectionSink& sink) override;
  int poll() override;
  bool prepare_sleep() override { return ready_.empty(); }

  struct Half;

 private:
  // Makes the half's network wake this transport.
  void watch(const std::shared_ptr<Half>& half);
  void note_ready(const std::shared_ptr<Half>& half);

  SwitchedNetwork& network_;
  net::Endpoint self_;
  std::function<void()> wake_;
  std::vector<std::shared_ptr<Half>> ready_;  // those that poll() looks at, in turn
};

class SwitchedAcceptor final : public net::Acceptor {
 public:
  struct Owner {
    const Clock& clock;
    net::AcceptorSink& sink;
    std::function<void()> wake;  // poll() has something to do; may be empty
  };

  // REQUIRES: no other acceptor lives on this endpoint.
  SwitchedAcceptor(SwitchedNetwork& network, net::Listening listening, Owner owner);
  ~SwitchedAcceptor() override;

  net::Endpoint endpoint() const override { return listening_.at; }
  int poll() override;

 private:
  struct Unfinished {
    std::shared_ptr<NetworkPipe> pipe;
    std::uint64_t deadline_ns;
  };

  bool examine(const Unfinished& candidate);
  bool refuse(NetworkPipe& pipe, Errc reason, const char* text, bool say_so);

  SwitchedNetwork& network_;
  net::Listening listening_;
  Owner owner_;
  std::vector<Unfinished> unfinished_;
};

// An accepted connection on its way to a lane.
struct SwitchedIncoming final : net::Incoming {
  SwitchedIncoming(SwitchedNetwork& network_in, std::shared_ptr<NetworkPipe> pipe_in)
      : network(network_in), pipe(std::move(pipe_in)) {}
  ~SwitchedIncoming() override {
    if (pipe) network.close(*pipe, 1);
  }
  SwitchedNetwork& network;
  std::shared_ptr<NetworkPipe> pipe;
};

}  // namespace tern::sim
