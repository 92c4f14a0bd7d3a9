#pragma once

// The plain sockets of attackers. Nothing here waits longer than a daemon needs to take a byte.

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <algorithm>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/fd.h"

namespace tern::attack {

inline void lose_patience_soon(const Fd& fd) {
  const timeval patience{0, 200'000};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
}

// Empty if it is not let in.
inline Fd connect_local(const std::string& path, int type = SOCK_STREAM) {
  Fd fd(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::copy(path.begin(), path.end(), address.sun_path);
  const void* const generic = &address;
  if (::connect(fd.get(), static_cast<const sockaddr*>(generic), sizeof address) != 0) fd.reset();
  lose_patience_soon(fd);
  return fd;
}

inline Fd connect_port(int port) {
  Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const void* const generic = &address;
  if (::connect(fd.get(), static_cast<const sockaddr*>(generic), sizeof address) != 0) fd.reset();
  lose_patience_soon(fd);
  return fd;
}

// What the socket takes now.
inline bool push(const Fd& fd, std::span<const std::byte> bytes) {
  return ::send(fd.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0;
}
inline bool push(const Fd& fd, std::string_view text) {
  return push(fd, std::as_bytes(std::span(text)));
}

// Waits for some bytes; false at the end of the connection, or of patience.
inline bool await_bytes(const Fd& fd) {
  std::byte bytes[4096];
  return ::recv(fd.get(), bytes, sizeof bytes, 0) > 0;
}

// The last `most` of what was put in.
template <typename Thing>
class Held {
 public:
  explicit Held(std::size_t most) : most_(most) {}
  Thing& hold(Thing thing) {
    if (things_.size() == most_) things_.pop_front();
    return things_.emplace_back(std::move(thing));
  }
  std::deque<Thing>& all() noexcept { return things_; }

 private:
  std::size_t most_;
  std::deque<Thing> things_;
};

}  // namespace tern::attack
