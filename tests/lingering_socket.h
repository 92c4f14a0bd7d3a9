#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <span>
#include <stdexcept>
#include <thread>
#include <utility>

#include "base/fd.h"
#include "base/passed_descriptors.h"

namespace tern::tests {

// A TCP socket whose last close() sleeps until the other end is gone: it lingers over what nobody
// reads.
class LingeringSocket {
 public:
  LingeringSocket() {
    const Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int few_bytes = 4096;
    ::setsockopt(listener.get(), SOL_SOCKET, SO_RCVBUF, &few_bytes, sizeof few_bytes);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof at;
    lingers_.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const linger ten_minutes{1, 600};
    ::setsockopt(lingers_.get(), SOL_SOCKET, SO_LINGER, &ten_minutes, sizeof ten_minutes);
    if (::bind(listener.get(), generic(at), bytes) != 0 || ::listen(listener.get(), 1) != 0 ||
        ::getsockname(listener.get(), generic(at), &bytes) != 0 ||
        ::connect(lingers_.get(), generic(at), bytes) != 0) {
      throw std::runtime_error(std::strerror(errno));
    }
    other_end_.reset(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const std::array<char, 65536> unread{};
    while (::send(lingers_.get(), unread.data(), unread.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
    }
  }

  int fd() const noexcept { return lingers_.get(); }
  // REQUIRES: another has it and will not close it meanwhile, or release() was called.
  void close() noexcept { lingers_.reset(); }
  // Once another has been sent it. If that one was quicker, a thread sleeps until release().
  void close_meanwhile() {
    std::thread([socket = std::move(lingers_)] {}).detach();
  }
  // Who closes it sleeps no longer.
  void release() noexcept { other_end_.reset(); }

 private:
  static sockaddr* generic(sockaddr_in& address) noexcept {
    return static_cast<sockaddr*>(static_cast<void*>(&address));
  }

  Fd lingers_;
  Fd other_end_;  // goes first
};

// Sends the bytes with descriptors; 0 or errno.
inline int send_descriptors(int socket, std::span<const int> fds,
                            std::span<const std::byte> bytes) {
  iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int) * kMaxPassedFds)> control{};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = CMSG_SPACE(fds.size_bytes());
  cmsghdr* part = CMSG_FIRSTHDR(&message);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(fds.size_bytes());
  std::memcpy(CMSG_DATA(part), fds.data(), fds.size_bytes());
  return ::sendmsg(socket, &message, MSG_NOSIGNAL) < 0 ? errno : 0;
}

inline int send_descriptor(int socket, int fd, std::span<const std::byte> bytes) {
  return send_descriptors(socket, {&fd, 1}, bytes);
}

}  // namespace tern::tests
