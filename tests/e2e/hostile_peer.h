#pragma once

// What connects to a daemon's port and is no daemon: it writes frames, and things like frames, by
// hand.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>
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
  explicit HostilePeer(int port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    sockaddr generic{};
    std::memcpy(&generic, &address, sizeof(generic));
    if (::connect(socket_.get(), &generic, sizeof(address)) != 0) socket_.reset();
  }

  // False when the daemon has closed, or takes nothing for a second.
  bool send(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      pollfd entry{socket_.get(), POLLOUT, 0};
      if (::poll(&entry, 1, 1000) <= 0) return false;
      const ssize_t count =
          ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (count <= 0) return false;
      bytes = bytes.subspan(static_cast<std::size_t>(count));
    }
    return true;
  }

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
  bool is_thrown_out() {
    return eventually([&] {
      std::byte bytes[4096];
      const ssize_t count = ::recv(socket_.get(), bytes, sizeof(bytes), MSG_DONTWAIT);
      return count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR);
    });
  }
  // Takes what has come, and forgets it; false when the daemon has closed the connection.
  bool drain() {
    std::byte bytes[4096];
    ssize_t count = 1;
    while (count > 0) count = ::recv(socket_.get(), bytes, sizeof(bytes), MSG_DONTWAIT);
    return count < 0 && (errno == EAGAIN || errno == EINTR);
  }
  void shut() { ::shutdown(socket_.get(), SHUT_WR); }

 private:
  bool receive(std::span<std::byte> bytes) {
    if (bytes.empty()) return true;
    std::size_t have = 0;
    const auto has_all = [&] {
      const ssize_t count =
          ::recv(socket_.get(), bytes.data() + have, bytes.size() - have, MSG_DONTWAIT);
      if (count > 0) have += static_cast<std::size_t>(count);
      return have == bytes.size() || count == 0;
    };
    return eventually(has_all, kPatience, socket_.get()) && have == bytes.size();
  }

  Fd socket_;
  std::uint64_t sequence_ = 0;
};

}  // namespace tern::e2e
