#include "base/passed_descriptors.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace tern {
namespace {

// Linux 6.16; older headers lack the name.
constexpr int kSoPassRights = 83;

std::vector<Fd> take_fds(msghdr& message) {
  // Owned one by one as they are found; the array is reserved first so that nothing can throw
  // between.
  std::vector<Fd> fds;
  fds.reserve(kMaxPassedFds);
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof fd);
      fds.emplace_back(fd);
    }
  }
  return fds;
}

}  // namespace

bool refuse_passed_descriptors(int socket) noexcept {
  const int no = 0;
  return ::setsockopt(socket, SOL_SOCKET, kSoPassRights, &no, sizeof no) == 0;
}

// Without room for them the kernel says that there are descriptors, and takes back those that it
// has looked at. What is taken then is what was looked at: nobody else reads this socket.
Received receive_without_descriptors(int socket, std::span<std::byte> into) {
  iovec piece{into.data(), into.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  Received received;
  do {
    received.bytes = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_PEEK);
  } while (received.bytes < 0 && errno == EINTR);
  if (received.bytes < 0) {
    received.error = errno;
    return received;
  }
  received.has_left_descriptors = (message.msg_flags & MSG_CTRUNC) != 0;
  received.cut = (message.msg_flags & MSG_TRUNC) != 0;
  if (received.has_left_descriptors || received.bytes == 0) return received;
  const auto seen = static_cast<std::size_t>(received.bytes);
  do {
    received.bytes = ::recv(socket, into.data(), seen, MSG_DONTWAIT);
  } while (received.bytes < 0 && errno == EINTR);
  if (received.bytes < 0) received.error = errno;
  return received;
}

void drop_received(int socket) noexcept {
  ::shutdown(socket, SHUT_RD);
  std::array<std::byte, 4096> bytes;
  ssize_t got = 0;
  do {
    got = ::recv(socket, bytes.data(), bytes.size(), MSG_DONTWAIT);
  } while (got > 0 || (got < 0 && errno == EINTR));
}

Received receive_with_descriptors(int socket, std::span<std::byte> into) {
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int) * kMaxPassedFds)> control{};
  iovec piece{into.data(), into.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  Received received;
  do {
    received.bytes = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (received.bytes < 0 && errno == EINTR);
  if (received.bytes < 0) {
    received.error = errno;
    return received;
  }
  received.fds = take_fds(message);
  received.cut = (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0;
  return received;
}

}  // namespace tern
