#pragma once

// Descriptors that come over a Unix socket. To close one may take as long as who sent it likes: a
// TCP socket that lingers, a file of a file system in user space. So nobody's are taken where the
// kernel can refuse them for us. Elsewhere a daemon leaves them in the socket: what is not in its
// table takes no place there, and no file of it is flushed. They go with the socket, which a thread
// closes that may wait (daemon/service/disposal.h).

#include <cstddef>
#include <span>
#include <vector>

#include "base/fd.h"

namespace tern {

// From now on a sender of descriptors to this socket, or to what it accepts, gets EPERM. False: the
// kernel is older than Linux 6.16 and has no such option.
bool refuse_passed_descriptors(int socket) noexcept;

// What one recvmsg() has brought.
struct Received {
  std::ptrdiff_t bytes = 0;  // 0: the other side has closed; -1: nothing, see `error`
  int error = 0;             // errno
  bool cut = false;          // there were more bytes in the packet, or more descriptors
  std::vector<Fd> fds;
  bool has_left_descriptors = false;  // and all that came with them
};

// What Linux lets one message carry (SCM_MAX_FD). With room for fewer the kernel would close the
// rest at once.
inline constexpr std::size_t kMaxPassedFds = 253;

// Never blocks. What has descriptors with it stays in the socket, where it comes first again.
Received receive_without_descriptors(int socket, std::span<std::byte> into);

// Drops what has come, descriptors with it, which may take as long as who sent them likes. What is
// sent from now on is refused.
void drop_received(int socket) noexcept;

// Never blocks. Descriptors that come along are the caller's, and not closed by the kernel on the
// way, as read() has it.
Received receive_with_descriptors(int socket, std::span<std::byte> into);

}  // namespace tern
