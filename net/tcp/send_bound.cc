#include "net/tcp/send_bound.h"

#include <linux/socket.h>
#include <sys/socket.h>

#include <algorithm>

namespace tern::net {

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
    // The kernel doubles it, for what it needs to administer the bytes.
    const int half = static_cast<int>(std::min(bytes, kMost) / 2);
    ::setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &half, sizeof(half));
  }
  bytes_ = bytes;
}

}  // namespace tern::net
