#include "shm/packet_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>

namespace tern::shm {
namespace {

// Linux 6.5; older headers lack the name.
constexpr int kSoPeerPidfd = 77;

Result<sockaddr_un> make_address(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path || path.find('\0') != path.npos) {
    return fail(Errc::invalid_argument, "the socket path must have 1 to 107 bytes: '" + path + "'");
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

const sockaddr* generic(const sockaddr_un& address) noexcept {
  return reinterpret_cast<const sockaddr*>(&address);
}

Errc connect_error(int error_number) noexcept {
  switch (error_number) {
    case ENOENT:
    case ENOTDIR:
    case ECONNREFUSED:
      return Errc::daemon_absent;
    case EACCES:
    case EPERM:
      return Errc::permission_denied;
    case EAGAIN:
    case EINPROGRESS:
      return Errc::timeout;
    default:
      return Errc::io_error;
  }
}

struct ControlBuffer {
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int) * kMaxPacketFds)> bytes{};
};

// A connect to any file that is no socket is refused as well, so the kind is looked at too.
bool is_stale_socket(const std::string& path) {
  struct stat file {};
  if (::lstat(path.c_str(), &file) != 0 || !S_ISSOCK(file.st_mode)) return false;
  const Result<PacketSocket> other = PacketSocket::connect(path, 0);
  return !other && other.error().code == Errc::daemon_absent;
}

// A full backlog makes connect wait; the send timeout bounds that, and what is left of it does so
// after a signal. errno's value, or 0.
int connect_by(int fd, const sockaddr_un& address, std::int64_t timeout_ms) {
  using std::chrono::milliseconds;
  using Clock = std::chrono::steady_clock;
  const milliseconds whole(std::max<std::int64_t>(timeout_ms, 1));
  const auto begin = Clock::now();
  for (milliseconds left = whole; left.count() > 0;) {
    if (timeout_ms >= 0) {
      const timeval timeout{left.count() / 1000, left.count() % 1000 * 1000};
      ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
    }
    if (::connect(fd, generic(address), sizeof address) == 0) return 0;
    if (errno != EINTR) return errno;
    if (timeout_ms >= 0) {
      left = whole - std::chrono::duration_cast<milliseconds>(Clock::now() - begin);
    }
  }
  return EAGAIN;
}

}  // namespace

Result<PacketSocket> PacketSocket::connect(const std::string& path, std::int64_t timeout_ms) {
  Result<sockaddr_un> address = make_address(path);
  if (!address) return tl::unexpected(address.error());
  Fd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!fd) return fail_errno(Errc::io_error, "cannot make a socket", errno);
  if (const int error_number = connect_by(fd.get(), *address, timeout_ms); error_number != 0) {
    return fail_errno(connect_error(error_number), "cannot connect to " + path, error_number);
  }
  return PacketSocket(std::move(fd));
}

Result<std::pair<PacketSocket, PacketSocket>> PacketSocket::make_pair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return fail_errno(Errc::io_error, "cannot make a socket pair", errno);
  }
  return std::pair(PacketSocket(Fd(ends[0])), PacketSocket(Fd(ends[1])));
}

Status PacketSocket::send(std::span<const std::byte> bytes, std::span<const int> fds) const {
  if (bytes.empty() || bytes.size() > kMaxPacketBytes || fds.size() > kMaxPacketFds) {
    return fail(Errc::invalid_argument, "a packet has 1 to 4096 bytes and at most 32 descriptors");
  }
  iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  ControlBuffer control;
  if (!fds.empty()) {
    message.msg_control = control.bytes.data();
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(part), fds.data(), fds.size_bytes());
  }
  ssize_t sent = 0;
  do {
    sent = ::sendmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent >= 0) return {};
  switch (errno) {
    case EAGAIN:
    case ENOBUFS:
      return fail(Errc::would_block, "the other side does not read its socket");
    case EPIPE:
    case ECONNRESET:
    case ENOTCONN:
      return fail(Errc::peer_lost, "the other side closed its socket");
    default:
      return fail_errno(Errc::io_error, "cannot send a packet", errno);
  }
}

Result<Packet> PacketSocket::receive() const {
  std::array<std::byte, kMaxPacketBytes> bytes;
  Received received = receive_with_descriptors(fd_.get(), bytes);
  switch (received.error) {
    case 0:
      break;
    case EAGAIN:
      return fail(Errc::would_block, "no packet waits");
    case ECONNRESET:
    case ENOTCONN:
      return fail(Errc::peer_lost, "the other side closed its socket");
    default:
      return fail_errno(Errc::io_error, "cannot receive a packet", received.error);
  }
  if (received.bytes == 0) return fail(Errc::peer_lost, "the other side closed its socket");
  if (received.cut || received.fds.size() > kMaxPacketFds) {
    return fail(Errc::protocol_error, "a packet has more than 4096 bytes or 32 descriptors");
  }
  Packet packet;
  packet.bytes.assign(bytes.begin(), bytes.begin() + received.bytes);
  packet.fds = std::move(received.fds);
  return packet;
}

Result<PeerCredentials> PacketSocket::peer_credentials() const {
  ucred credentials{};
  socklen_t bytes = sizeof credentials;
  if (::getsockopt(fd_.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) != 0) {
    return fail_errno(Errc::io_error, "cannot read the peer's credentials", errno);
  }
  PeerCredentials peer;
  peer.pid = credentials.pid;
  peer.uid = credentials.uid;
  peer.gid = credentials.gid;
  // With too small a buffer the kernel answers ERANGE and the length that it needs.
  bytes = 0;
  if (::getsockopt(fd_.get(), SOL_SOCKET, SO_PEERGROUPS, nullptr, &bytes) != 0 && errno == ERANGE) {
    peer.groups.resize(bytes / sizeof(gid_t));
    if (::getsockopt(fd_.get(), SOL_SOCKET, SO_PEERGROUPS, peer.groups.data(), &bytes) != 0) {
      peer.groups.clear();
    }
  }
  if (peer.pid == 0) return peer;
  int pidfd = -1;
  bytes = sizeof pidfd;
  if (::getsockopt(fd_.get(), SOL_SOCKET, kSoPeerPidfd, &pidfd, &bytes) == 0) {
    peer.pidfd.reset(pidfd);
  } else {
    // Older kernel: the number could be reused between the connect and here. The socket's hang-up
    // covers that case.
    peer.pidfd.reset(static_cast<int>(::syscall(SYS_pidfd_open, peer.pid, 0)));
  }
  return peer;
}

Result<PacketListener> PacketListener::bind(const std::string& path, mode_t mode) {
  Result<sockaddr_un> address = make_address(path);
  if (!address) return tl::unexpected(address.error());
  Fd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return fail_errno(Errc::io_error, "cannot make a socket", errno);
  int rc = ::bind(fd.get(), generic(*address), sizeof *address);
  if (rc != 0 && errno == EADDRINUSE) {
    if (!is_stale_socket(path)) return fail(Errc::already_exists, "somebody uses " + path);
    ::unlink(path.c_str());
    rc = ::bind(fd.get(), generic(*address), sizeof *address);
  }
  if (rc != 0) return fail_errno(Errc::io_error, "cannot bind " + path, errno);
  PacketListener listener;
  refuse_passed_descriptors(fd.get());
  listener.fd_ = std::move(fd);
  listener.path_ = path;
  if (::chmod(path.c_str(), mode) != 0 || ::listen(listener.fd(), 128) != 0) {
    return fail_errno(Errc::io_error, "cannot listen on " + path, errno);
  }
  return listener;
}

PacketListener PacketListener::adopt(Fd fd) noexcept {
  refuse_passed_descriptors(fd.get());
  PacketListener listener;
  listener.fd_ = std::move(fd);
  return listener;
}

PacketListener& PacketListener::operator=(PacketListener&& other) noexcept {
  if (this == &other) return *this;
  unlink_path();
  fd_ = std::move(other.fd_);
  path_ = std::exchange(other.path_, {});
  return *this;
}

PacketListener::~PacketListener() { unlink_path(); }

// Only the owner of a descriptor unlinks: a moved-from listener has none.
void PacketListener::unlink_path() noexcept {
  if (fd_ && !path_.empty()) ::unlink(path_.c_str());
}

Result<PacketSocket> PacketListener::accept() const {
  int fd = -1;
  do {
    fd = ::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC);
  } while (fd < 0 && (errno == EINTR || errno == ECONNABORTED));
  if (fd >= 0) return PacketSocket(Fd(fd));
  if (errno == EAGAIN) return fail(Errc::would_block, "nobody waits");
  return fail_errno(Errc::io_error, "cannot accept a connection", errno);
}

}  // namespace tern::shm
