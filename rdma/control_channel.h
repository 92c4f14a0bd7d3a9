#pragma once

// The connection that every RDMA connection begins on. It carries the set-up of the queue pair (the
// frames of wire/rdma.h, called our own here), and the user's frames wherever RDMA cannot.
//
// The user counts the bytes that wait to leave, and knows nothing of our own frames, so that their
// bytes are taken off here. Our own frames are borrowed by the connection until they have left; no
// frame of the set-up is made while the one before it may still be read.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "net/transport.h"
#include "wire/hello.h"
#include "wire/rdma.h"

namespace tern::rdma {

// Thread: the lane's.
class ControlChannel {
 public:
  // REQUIRES: nothing else is called before open(), nor after close(), but is_open(),
  // user_bytes() and received_bytes().
  void open(std::unique_ptr<net::Connection> connection) noexcept;
  void close() noexcept { connection_.reset(); }
  bool is_open() const noexcept { return connection_ != nullptr; }

  // ---- Frames of the user's
  void pass(const net::OutgoingFrame& frame);
  // The user's hello, with the bit that asks for an offer.
  void pass_hello_that_asks(const wire::HelloBody& hello);
  // Bytes of the user's that wait to leave.
  std::size_t user_bytes() const;
  std::uint64_t received_bytes() const { return connection_ ? connection_->received_bytes() : 0; }

  // ---- Frames of the set-up
  // REQUIRES: `kind` is rdma_offer or rdma_accept.
  void send_set_up(wire::FrameKind kind, const wire::RdmaBody& local);
  void send_ready();
  void send_decline(Errc code, const char* why);
  // Whether a frame of the set-up may still be read here by the connection.
  bool has_own_waiting() const;
  bool has_waiting() const { return connection_->queued_bytes() > 0; }
  // Where the payload of the peer's frame of the set-up goes. Empty and false: no such frame has a
  // payload of that size.
  bool place(const wire::FrameHeader& header, net::PayloadPlace& place) noexcept;
  // REQUIRES: the payload of that header is complete.
  std::span<const std::byte> payload(const wire::FrameHeader& header) const noexcept {
    return std::span(payload_).first(header.payload_bytes);
  }

  net::Connection& connection() noexcept { return *connection_; }
  const net::Connection& connection() const noexcept { return *connection_; }

 private:
  void send_own(std::span<const std::byte> frame);
  // Bytes that the connection has taken and no longer reads here.
  std::uint64_t taken() const { return given_ - connection_->queued_bytes(); }

  std::unique_ptr<net::Connection> connection_;
  std::uint64_t given_ = 0;      // bytes, of the user's and our own
  std::uint64_t own_end_ = 0;    // where in them the last of our own ends
  std::uint64_t own_bytes_ = 0;  // of our own that may wait

  wire::HelloFrame hello_;
  wire::RdmaFrame set_up_;
  wire::FrameHeader ready_;
  wire::RdmaDeclineFrame decline_;
  std::array<std::byte, sizeof(wire::RefuseBody)> payload_;  // of the peer's
};

}  // namespace tern::rdma
