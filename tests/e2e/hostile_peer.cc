#include "tests/e2e/hostile_peer.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "tests/rounds.h"

namespace tern::e2e {

HostilePeer::HostilePeer(int port, SSL_CTX* tls)
    : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  sockaddr generic{};
  std::memcpy(&generic, &address, sizeof(generic));
  if (::connect(socket_.get(), &generic, sizeof(address)) != 0) socket_.reset();
  if (!socket_) return;
  ::fcntl(socket_.get(), F_SETFL, O_NONBLOCK);
  const int at_once = 1;
  ::setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof(at_once));
  if (tls == nullptr) return;
  ::signal(SIGPIPE, SIG_IGN);  // OpenSSL writes without MSG_NOSIGNAL
  ssl_.reset(SSL_new(tls));
  SSL_set_fd(ssl_.get(), socket_.get());
  SSL_set_connect_state(ssl_.get());
  const bool is_secure = eventually(
      [&] {
        const int done = SSL_do_handshake(ssl_.get());
        return done == 1 || SSL_get_error(ssl_.get(), done) != SSL_ERROR_WANT_READ;
      },
      kPatience, socket_.get());
  if (!is_secure || SSL_is_init_finished(ssl_.get()) == 0) socket_.reset();
}

std::optional<std::size_t> HostilePeer::moved(ssize_t count) const {
  if (count > 0) return static_cast<std::size_t>(count);
  if (!ssl_)
    return count < 0 && (errno == EAGAIN || errno == EINTR) ? std::nullopt
                                                            : std::optional(std::size_t{0});
  const int error = SSL_get_error(ssl_.get(), static_cast<int>(count));
  const bool later = error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE;
  return later ? std::nullopt : std::optional(std::size_t{0});
}

std::optional<std::size_t> HostilePeer::try_read(std::span<std::byte> bytes) {
  if (!socket_) return 0;
  return moved(ssl_ ? SSL_read(ssl_.get(), bytes.data(), static_cast<int>(bytes.size()))
                    : ::recv(socket_.get(), bytes.data(), bytes.size(), 0));
}

std::optional<std::size_t> HostilePeer::try_write(std::span<const std::byte> bytes) {
  if (!socket_) return 0;
  return moved(ssl_ ? SSL_write(ssl_.get(), bytes.data(), static_cast<int>(bytes.size()))
                    : ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
}

bool HostilePeer::send(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (const auto count = try_write(bytes)) {
      if (*count == 0) return false;
      bytes = bytes.subspan(*count);
      continue;
    }
    pollfd entry{socket_.get(), POLLOUT, 0};
    // A daemon may take long for what its socket holds.
    if (::poll(&entry, 1, 60'000 * tests::kSlowdown) <= 0) return false;
  }
  return true;
}

bool HostilePeer::is_delivered() const {
  return eventually([&] {
    int unacknowledged = 0;
    return ::ioctl(socket_.get(), SIOCOUTQ, &unacknowledged) == 0 && unacknowledged == 0;
  });
}

bool HostilePeer::receive(std::span<std::byte> bytes) {
  if (bytes.empty()) return true;
  std::size_t have = 0;
  const auto has_all = [&] {
    const auto count = try_read(bytes.subspan(have));
    have += count.value_or(0);
    return have == bytes.size() || count == 0u;
  };
  return eventually(has_all, kPatience, socket_.get()) && have == bytes.size();
}

bool HostilePeer::is_thrown_out() {
  return eventually([&] {
    std::byte bytes[4096];
    return try_read(bytes) == 0u;
  });
}

bool HostilePeer::drain() {
  std::byte bytes[4096];
  while (const auto count = try_read(bytes)) {
    if (*count == 0) return false;
  }
  return true;
}

void HostilePeer::shut() { ::shutdown(socket_.get(), SHUT_WR); }

std::vector<std::byte> HostilePeer::sealed(wire::FrameHeader header,
                                           std::span<const std::byte> payload) {
  wire::seal_frame_header(header);
  std::vector<std::byte> bytes(sizeof(header) + payload.size());
  std::memcpy(bytes.data(), &header, sizeof(header));
  std::copy(payload.begin(), payload.end(), bytes.begin() + sizeof(header));
  return bytes;
}

std::optional<HostilePeer::Received> HostilePeer::receive_frame() {
  while (true) {
    std::vector<std::byte> head(sizeof(wire::FrameHeader));
    if (!receive(head)) return std::nullopt;
    const auto parsed = wire::parse_frame_header(head);
    if (parsed.error != wire::ParseError::none) return std::nullopt;
    Received frame{parsed.header, std::vector<std::byte>(parsed.header.payload_bytes)};
    if (!receive(frame.payload)) return std::nullopt;
    if (wire::is_sequenced(static_cast<wire::FrameKind>(frame.header.kind))) return frame;
  }
}

}  // namespace tern::e2e
