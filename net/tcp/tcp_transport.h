#pragma once

// Frames over TCP, on Boost.Asio's reactor with direct scatter reads and writes; or inside TLS.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/time_slice.h"
#include "net/event_loop.h"
#include "net/tcp/name_lookups.h"
#include "net/tls/tls_context.h"
#include "net/transport.h"

namespace tern::net {

struct TcpSettings {
  int send_buffer_bytes = 0;  // SO_SNDBUF and SO_RCVBUF; 0: the kernel's own sizing
  int receive_buffer_bytes = 0;
  // What one connection may read, and write, in one poll() before the next one has its turn.
  std::size_t bytes_per_poll = 1 << 20;
  // With a clock all connections together have so long in one poll(), or in one flush(), and the one
  // whose turn ends a call each way more: bytes say nothing of how long they take when memory is
  // touched for the first time. The time begins after the first call. Outlives all connections.
  const Clock* clock = nullptr;
  std::uint64_t longest_poll_ns = 2'000'000;
  // Every connection is TLS from its first byte on; null: plaintext. Outlives all connections.
  const TlsSource* tls = nullptr;
  // Connects to addresses of this machine alone.
  bool loopback_only = false;
  // With loopback_only, for whom a user of this machine is counted; null: for the user.
  std::function<std::uint32_t(std::uint32_t)> account_of{};
  // Null: those of the process. Outlives the transport.
  NameLookups* names = nullptr;
};

class TcpStream;

// Lives on the event loop of its lane's thread, which outlives it and its connections. Numeric
// addresses are connected to at once; names are looked up on other threads, so the lane never
// waits.
class TcpTransport final : public Transport {
 public:
  TcpTransport(EventLoop& loop, const TcpSettings& settings);
  ~TcpTransport() override;

  const char* name() const noexcept override { return "tcp"; }
  std::unique_ptr<Connection> connect(const Endpoint& endpoint, ConnectionSink& sink) override;
  void hasten(const Endpoint& endpoint) override;
  std::unique_ptr<Connection> adopt(std::unique_ptr<Incoming> incoming,
                                    ConnectionSink& sink) override;
  // Also runs what is ready on the event loop. What was sent since goes out here.
  int poll() override;
  void flush() override;

 private:
  std::optional<LateTimeSlice> time_slice() const;

  EventLoop& loop_;
  TcpSettings settings_;
  std::vector<std::shared_ptr<TcpStream>> streams_;
  std::size_t next_ = 0;
};

struct TcpListening {
  // An empty host is every address, port 0 one that the kernel chooses.
  Endpoint at;
  AcceptorSettings settings = {};
  TcpSettings tcp = {};  // of the connections
};

class TcpAcceptor final : public Acceptor {
 public:
  // A name is resolved here and now. The loop, clock and sink outlive the acceptor.
  static Result<std::unique_ptr<TcpAcceptor>> create(EventLoop& loop, const Clock& clock,
                                                     const TcpListening& listening,
                                                     AcceptorSink& sink);
  ~TcpAcceptor() override;

  Endpoint endpoint() const override;
  int poll() override;

  struct State;

 private:
  explicit TcpAcceptor(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

}  // namespace tern::net
