#pragma once

// What carries frames. A Connection is an ordered pipe of frames to one other daemon that may break
// at any time; it knows nothing of sequences, acknowledgements or resumption, which are Link's
// business. Implementations: LoopbackTransport, FaultyTransport (a decorator), TcpTransport,
// RdmaTransport. All pass tests/net/transport_conformance.h. One Transport per lane, used by that
// lane's thread only.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <tuple>

#include "base/errc.h"
#include "base/result.h"
#include "wire/frame.h"

namespace tern::net {

struct Endpoint {
  std::string host;  // name or address
  std::uint16_t port = 0;
  // For whom it is connected to: slow names delay their user alone. No part of the address.
  std::uint64_t user = 0;

  friend bool operator==(const Endpoint& a, const Endpoint& b) noexcept {
    return a.port == b.port && a.host == b.host;
  }
  friend auto operator<=>(const Endpoint& a, const Endpoint& b) noexcept {
    return std::tie(a.host, a.port) <=> std::tie(b.host, b.port);
  }
};
std::string to_text(const Endpoint& endpoint);
// One text for each address, however it is written: without brackets, and as IPv4 where a socket
// that takes both writes it as IPv6. Names stay as they are.
std::string canonical_host(std::string_view host);

// Where an arriving payload goes: the first prefix.size() bytes to prefix, the rest to body.
// Together exactly payload_bytes, or both empty: the payload is then read and thrown away.
struct PayloadPlace {
  std::span<std::byte> prefix;
  std::span<std::byte> body;
};

// A frame as it leaves: one contiguous header-and-prefix, one body.
// Owned by: the sender, unchanged until the connection is destroyed or the peer has acknowledged
// it.
struct OutgoingFrame {
  std::span<const std::byte> head;  // frame header and the first bytes of the payload
  std::span<const std::byte> body;
};

// Where bytes lie.
enum class MemoryKind : std::uint8_t {
  host,    // the processor's own: every carrier sends from it
  device,  // an accelerator's: the processor may be unable to read it
};
const char* memory_kind_name(MemoryKind kind) noexcept;

struct Memory {
  std::span<const std::byte> bytes;
  MemoryKind kind;
};

class Connection;

// Receives a connection's events, on the lane's thread, only from Transport::poll(). Any
// connection, the one that calls included, may be destroyed in here; nothing more is heard of it
// then.
class ConnectionSink {
 public:
  virtual ~ConnectionSink() = default;
  // The connection is established (a connect has succeeded; an adopted one is open from the start).
  virtual void on_open(Connection& connection) = 0;
  // A header has been parsed and verified. False: refuse it, close the connection as corrupt.
  virtual bool on_header(Connection& connection, const wire::FrameHeader& header,
                         PayloadPlace& place) = 0;
  // The payload of that header is complete; its CRC has been compared.
  virtual void on_frame(Connection& connection, const wire::FrameHeader& header,
                        const PayloadPlace& place, bool payload_valid) = 0;
  // The connection is unusable, for good; called at most once, never from inside send(). If a
  // header had been announced by on_header and its on_frame has not come, its place is free again.
  virtual void on_closed(Connection& connection, Errc reason, const char* text) = 0;
};

// How fast the carrier has brought bytes to the other side, as the carrier itself estimates it.
struct DeliveryRate {
  double bytes_per_s = 0.0;  // 0: it does not know
  // The sender had too little to send, so that the carrier may be faster.
  bool limited = true;
  std::uint64_t round_trip_ns = 0;  // the shortest that the carrier remembers
  std::uint64_t acked_bytes = 0;    // by the other side's carrier, since the start
  std::uint64_t busy_ns = 0;        // how long some were sent and not acked, since the start
};

// What a connection travels on, for people. The texts live until the next poll().
struct Carriage {
  const char* name = "";
  const char* note = "";        // the device, or why it is not another carrier
  std::uint64_t failovers = 0;  // to this peer, from a carrier that failed
};

// What a connection may leave below, where other connections' frames would wait behind it.
struct QueueBound {
  std::size_t bytes = 0;  // about so many; 0: as many as are good for this connection
  // Of one write. A carrier lets a queue that is not full have one more, so that the bound is met
  // the better, and costs the more, the smaller these are.
  std::size_t record_bytes = 16 << 10;
};

class Connection {
 public:
  // Closes; no event comes afterwards. What is still queued is offered to the carrier once more, so
  // that a last frame (goodbye, refuse) usually arrives; the frames' memory is free when this
  // returns.
  virtual ~Connection() = default;
  // Queues a frame behind those sent before. Never blocks, never calls the sink. After the
  // connection broke it does nothing (on_closed tells).
  virtual void send(const OutgoingFrame& frame) = 0;
  // Bytes queued and not yet taken by the carrier, oldest first: all bytes sent before these are no
  // longer read from the sender's memory.
  virtual std::size_t queued_bytes() const = 0;
  // Bytes that have arrived since the start; that it grows shows that the other side lives, also in
  // the middle of a long frame.
  virtual std::uint64_t received_bytes() const = 0;
  // From what the other side has acknowledged to the carrier. May make a system call.
  virtual DeliveryRate delivery_rate() const { return {}; }
  virtual Carriage carriage() const { return {}; }
  // A hint.
  virtual void bound_queue(const QueueBound&) {}
  // Reads nothing more until it is told to go on: what has come is more than its user keeps up with.
  // A hint.
  virtual void hold_reading(bool) {}
  // False: the carrier protects payloads by itself, and the peer does not look at their CRC. May
  // change while the connection lives.
  virtual bool wants_payload_crc() const { return true; }
};

// A connection that was accepted by the conductor and whose hello has been read, on its way to a
// lane.
class Incoming {
 public:
  virtual ~Incoming() = default;
  wire::HelloBody hello;
  std::string from;  // the peer's address, without the port
  // Who is charged for the connection, in words: the peer's user where it is of this machine and
  // nothing else is let in, otherwise its address.
  std::string source;
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual const char* name() const noexcept = 0;
  // Begins to connect; on_open or on_closed follows. The sink must outlive the connection.
  virtual std::unique_ptr<Connection> connect(const Endpoint& endpoint, ConnectionSink& sink) = 0;
  // The endpoint's user waits, too, for a connection to it that was begun for another one.
  virtual void hasten(const Endpoint&) {}
  // Takes over an accepted connection. REQUIRES: from an Acceptor of the same kind.
  virtual std::unique_ptr<Connection> adopt(std::unique_ptr<Incoming> incoming,
                                            ConnectionSink& sink) = 0;
  // Moves bytes and delivers events; returns the amount of work done.
  virtual int poll() = 0;
  // Offers the carrier what has been sent since poll() and waits for company, and delivers no event.
  // A hint: without it the next poll() does the same.
  virtual void flush() {}
  // Before the thread sleeps on its event loop. False: there is work already, do not sleep.
  virtual bool prepare_sleep() { return true; }
  // Frames' bodies will often lie in this memory, which stays where it is until forget_memory:
  // carriers that must register memory prepare for that. Errc::unsupported: the carrier cannot send
  // from memory of this kind, and no frame may have its body there. Host memory is never refused.
  [[nodiscard]] virtual Status remember_memory(const Memory& memory);
  // Nothing happens for memory that was not remembered. REQUIRES: no frame in it is under way. What
  // is forgotten may be unmapped, or given back to the kernel and then be remembered anew.
  virtual void forget_memory(const Memory&) {}
};

class AcceptorSink {
 public:
  virtual ~AcceptorSink() = default;
  // The hello has passed wire::parse_hello. To refuse, destroy `incoming` or offer it to a link.
  virtual void on_incoming(std::unique_ptr<Incoming> incoming, const wire::FrameHeader& header,
                           const wire::HelloBody& hello) = 0;
  // A connection that ended or misbehaved before it said a valid hello; for counters and the log.
  virtual void on_refused(const std::string& from, Errc reason, const char* text) = 0;
};

struct AcceptorSettings {
  std::uint64_t hello_timeout_ns = 5'000'000'000;  // from accepted to a complete hello
  // At least 1. For one more the oldest is refused; over TCP that of the source with most.
  std::uint32_t max_unfinished = 64;
};

struct Listening {
  Endpoint at;
  AcceptorSettings settings = {};
};

// Listens for other daemons, on the conductor's thread. Reads exactly the hello frame of each new
// connection, within a deadline; bounds how many may be unfinished at once.
class Acceptor {
 public:
  virtual ~Acceptor() = default;
  virtual Endpoint endpoint() const = 0;  // the port that was really bound
  virtual int poll() = 0;
};

}  // namespace tern::net
