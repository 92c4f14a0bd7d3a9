#include "net/tcp/send_bound.h"

#include <linux/socket.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>

namespace tern::net {
namespace {

// What a packet of this connection carries at most: 64 KiB on the loopback interface.
std::size_t segment_bytes(int socket) noexcept {
  int bytes = 0;
  socklen_t size = sizeof(bytes);
  return ::getsockopt(socket, IPPROTO_TCP, TCP_MAXSEG, &bytes, &size) == 0
             ? static_cast<std::size_t>(bytes)
             : 0;
}

}  // namespace

void SendBound::set(int socket, const QueueBound& bound) noexcept {
  constexpr std::size_t kMost = 1 << 30;
  const std::size_t bytes = bound.bytes;
  record_bytes_ = bound.record_bytes;
  if (fixed_ || bytes == bytes_) return;
  if (bytes_ > 0 && bytes > bytes_ - bytes_ / 8 && bytes < bytes_ + bytes_ / 8) return;
  int locks = 0;
  socklen_t size = sizeof(locks);
  if (::getsockopt(socket, SOL_SOCKET, SO_BUF_LOCK, &locks, &size) != 0) return;
  if (bytes == 0) {
    locks &= ~SOCK_SNDBUF_LOCK;
    ::setsockopt(socket, SOL_SOCKET, SO_BUF_LOCK, &locks, sizeof(locks));
  } else {
    // The other side acknowledges two segments at once, and a single one after 40 ms.
    const std::size_t least = 2 * segment_bytes(socket);
    // The kernel doubles it, for what it needs to administer the bytes.
    const int half = static_cast<int>(std::min(std::max(bytes, least), kMost) / 2);
    ::setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &half, sizeof(half));
  }
  bytes_ = bytes;
}

}  // namespace tern::net
