#pragma once

// The hand-shake socket: SOCK_SEQPACKET over a Unix path, one packet per struct of layout.h, with
// descriptors. Nothing here ever blocks, except connect() for the time it is given.

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/passed_descriptors.h"
#include "base/result.h"
#include "shm/layout.h"

namespace tern::shm {

inline constexpr std::size_t kMaxPacketFds = 32;
static_assert(kMaxPacketFds >= 2 + kMaxLanes, "a welcome carries segment, notify end and eventfds");

struct Packet {
  std::vector<std::byte> bytes;
  std::vector<Fd> fds;
};

// Who is on the other side, as the kernel knew at its connect.
struct PeerCredentials {
  pid_t pid = 0;  // 0: in another PID namespace
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups;  // supplementary
  // Readable when the process has ended; empty if pid is 0 or it has ended already.
  Fd pidfd;
};

// Thread: one may send while another receives.
class PacketSocket {
 public:
  PacketSocket() noexcept = default;
  explicit PacketSocket(Fd fd) noexcept : fd_(std::move(fd)) {}

  // daemon_absent if nobody listens, permission_denied, timeout, invalid_argument for a path that
  // is empty or too long (107 bytes).
  static Result<PacketSocket> connect(const std::string& path, std::int64_t timeout_ms);
  static Result<std::pair<PacketSocket, PacketSocket>> make_pair();

  // One packet, whole or not at all. would_block if the other side does not read, peer_lost if it
  // is gone, invalid_argument if bytes or descriptors are too many or none. The descriptors stay
  // the caller's.
  Status send(std::span<const std::byte> bytes, std::span<const int> fds = {}) const;

  // would_block if none waits, peer_lost at the end of the connection, protocol_error if the packet
  // or its descriptors were too large (nothing of it is kept).
  Result<Packet> receive() const;

  Result<PeerCredentials> peer_credentials() const;

  int fd() const noexcept { return fd_.get(); }
  void close() noexcept { fd_.reset(); }
  Fd release() noexcept { return std::move(fd_); }

 private:
  Fd fd_;
};

// A listening socket at a path; unlinks it at the end. Those who connect can pass no descriptors,
// where the kernel can refuse them.
class PacketListener {
 public:
  // A socket file that nobody listens on is replaced; already_exists if somebody does. mode is that
  // of the file.
  static Result<PacketListener> bind(const std::string& path, mode_t mode);
  // A socket that somebody else made and bound, and whose path stays theirs. REQUIRES: it listens
  // and does not block.
  static PacketListener adopt(Fd fd) noexcept;

  PacketListener() noexcept = default;
  PacketListener(PacketListener&& other) noexcept = default;
  PacketListener& operator=(PacketListener&& other) noexcept;
  ~PacketListener();

  // would_block if nobody waits.
  Result<PacketSocket> accept() const;
  int fd() const noexcept { return fd_.get(); }

 private:
  void unlink_path() noexcept;

  Fd fd_;
  std::string path_;  // empty: not ours to unlink
};

// A packet of exactly the struct's size, or nothing. The header is not looked at.
template <typename T>
bool read_packet(std::span<const std::byte> bytes, T& packet) noexcept {
  if (bytes.size() != sizeof(T)) return false;
  std::memcpy(&packet, bytes.data(), sizeof(T));
  return true;
}

template <typename T>
std::span<const std::byte> packet_bytes(const T& packet) noexcept {
  return std::as_bytes(std::span<const T, 1>(&packet, 1));
}

// Whether a text field of a packet ends inside the field.
inline bool terminated(std::span<const char> text) noexcept {
  return std::memchr(text.data(), '\0', text.size()) != nullptr;
}

// A zeroed packet with its header filled.
template <typename T>
T make_packet(PacketKind kind, std::uint64_t request) noexcept {
  T packet;
  std::memset(&packet, 0, sizeof packet);
  PacketHeader header{kPacketMagic, wire::kShmAbi, static_cast<std::uint16_t>(kind), request};
  std::memcpy(&packet, &header, sizeof header);
  return packet;
}

}  // namespace tern::shm
