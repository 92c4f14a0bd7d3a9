#pragma once

// What connects to a daemon's port and is no daemon: it writes frames, and things like frames, by
// hand.

#include <openssl/ssl.h>

#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/e2e/process.h"
#include "wire/crc32c.h"
#include "wire/frame.h"

namespace tern::e2e {

class HostilePeer {
 public:
  // `tls`: it speaks inside TLS, with what proofs that has; null: in plaintext.
  explicit HostilePeer(int port, SSL_CTX* tls = nullptr);

  bool is_secure() const { return socket_ && ssl_; }
  // False when the daemon has closed, or takes nothing for a second.
  bool send(std::span<const std::byte> bytes);
  // Waits until the daemon's kernel holds all that was sent. Without, a connection that sends later
  // may be read before: each processor's queue of packets is worked off in its own time.
  bool is_delivered() const;

  // A frame whose sizes and checksums fit.
  static std::vector<std::byte> frame(wire::FrameHeader header,
                                      std::span<const std::byte> payload) {
    header.payload_bytes = static_cast<std::uint32_t>(payload.size());
    header.payload_crc = payload.empty() ? 0 : wire::crc32c(payload);
    return sealed(header, payload);
  }
  // Only the header's own checksum is made to fit.
  static std::vector<std::byte> sealed(wire::FrameHeader header,
                                       std::span<const std::byte> payload);
  static std::vector<std::byte> hello_frame(const wire::HelloBody& body) {
    wire::FrameHeader header;
    header.kind = static_cast<std::uint8_t>(wire::FrameKind::hello);
    return frame(header, std::as_bytes(std::span(&body, 1)));
  }
  static wire::HelloBody hello_body(std::uint16_t lane, std::uint64_t node) {
    wire::HelloBody body;
    body.lane = lane;
    body.node = {0x7065'6572, node};
    body.session = node + 1;
    return body;
  }

  // Sends a hello and reads until the reply to it; false if there is none.
  bool hello(const wire::HelloBody& body) {
    if (!send(hello_frame(body))) return false;
    std::vector<std::byte> reply(sizeof(wire::FrameHeader) + sizeof(wire::HelloBody));
    if (!receive(reply)) return false;
    const auto parsed = wire::parse_frame_header(reply);
    return parsed.error == wire::ParseError::none &&
           parsed.header.kind == static_cast<std::uint8_t>(wire::FrameKind::hello_reply);
  }

  // Sequenced, with the next number.
  std::vector<std::byte> next(wire::FrameKind kind, std::span<const std::byte> payload) {
    wire::FrameHeader header;
    header.kind = static_cast<std::uint8_t>(kind);
    header.link_seq = ++sequence_;
    return frame(header, payload);
  }
  // The same of a header that says more.
  std::vector<std::byte> next(wire::FrameKind kind, wire::FrameHeader header,
                              std::span<const std::byte> payload) {
    header.kind = static_cast<std::uint8_t>(kind);
    header.link_seq = ++sequence_;
    return frame(header, payload);
  }
  std::vector<std::byte> control(std::string_view text) {
    return next(wire::FrameKind::control, std::as_bytes(std::span(text)));
  }

  // The next sequenced frame, whatever it is; nothing when the daemon has closed or patience is
  // out.
  struct Received {
    wire::FrameHeader header;
    std::vector<std::byte> payload;
  };
  std::optional<Received> receive_frame();

  // Whether the daemon closes the connection.
  bool is_thrown_out();
  // Takes what has come, and forgets it; false when the daemon has closed the connection.
  bool drain();
  void shut();

 private:
  // Bytes moved; 0: the daemon has closed; nothing: later.
  std::optional<std::size_t> try_read(std::span<std::byte> bytes);
  std::optional<std::size_t> try_write(std::span<const std::byte> bytes);
  // What the last call of the system or of OpenSSL says, as these two.
  std::optional<std::size_t> moved(ssize_t count) const;
  bool receive(std::span<std::byte> bytes);

  Fd socket_;
  std::unique_ptr<SSL, void (*)(SSL*)> ssl_{nullptr, SSL_free};
  std::uint64_t sequence_ = 0;
};

}  // namespace tern::e2e
