#include "daemon/control/socket_file.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/passed_descriptors.h"

namespace tern::daemon {
namespace {

// Whoever connects waits behind all of them, and one who has sent many small pieces takes long to
// read. Beyond, connect() waits.
constexpr int kBacklog = 64;

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

const sockaddr* generic(const sockaddr_un& address) noexcept {
  return static_cast<const sockaddr*>(static_cast<const void*>(&address));
}

// Removes a socket file whose owner is gone. A connect is the only question that the kernel
// answers.
Status remove_stale(const std::string& path, int type) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) {
    if (errno == ENOENT) return {};
    return fail_errno(Errc::io_error, path, errno);
  }
  if (!S_ISSOCK(info.st_mode)) {
    return fail(Errc::already_exists, path + ": is not a socket; remove it or choose another path");
  }
  const Fd probe(::socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probe) return fail_errno(Errc::io_error, "socket", errno);
  const sockaddr_un address = address_of(path);
  // EAGAIN: somebody listens, and the backlog is full.
  if (::connect(probe.get(), generic(address), sizeof(address)) == 0 || errno == EAGAIN) {
    return fail(Errc::already_exists, path + ": another process listens here; is ternd running?");
  }
  if (errno != ECONNREFUSED) return fail_errno(Errc::already_exists, path, errno);
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) {
    return fail_errno(Errc::io_error, path + ": cannot be replaced", errno);
  }
  return {};
}

}  // namespace

Result<SocketFile> SocketFile::listen(const std::string& path, int type, std::uint32_t mode) {
  if (path.empty() || path.size() >= sizeof(sockaddr_un::sun_path) ||
      path.find('\0') != std::string::npos) {
    return fail(Errc::invalid_argument, path + ": is not a path of 1 to 107 bytes");
  }
  if (auto status = remove_stale(path, type); !status) return tl::unexpected(status.error());
  SocketFile file;
  file.fd_ = Fd(::socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!file.fd_) return fail_errno(Errc::io_error, "socket", errno);
  refuse_passed_descriptors(file.fd_.get());
  const sockaddr_un address = address_of(path);
  if (::bind(file.fd_.get(), generic(address), sizeof(address)) != 0) {
    const int error_number = errno;
    const bool no_directory = error_number == ENOENT;
    return fail_errno(error_number == EACCES ? Errc::permission_denied : Errc::io_error,
                      path + (no_directory ? ": its directory must be created first" : ""),
                      error_number);
  }
  // Before listen() every connect is refused, so the mode is in force before anybody gets in.
  struct stat info {};
  if (::chmod(path.c_str(), mode) != 0 || ::lstat(path.c_str(), &info) != 0 ||
      ::listen(file.fd_.get(), kBacklog) != 0) {
    const int error_number = errno;
    ::unlink(path.c_str());
    return fail_errno(Errc::io_error, path, error_number);
  }
  file.path_ = path;
  file.device_ = info.st_dev;
  file.inode_ = info.st_ino;
  return file;
}

SocketFile::SocketFile(SocketFile&& other) noexcept
    : fd_(std::move(other.fd_)),
      path_(std::exchange(other.path_, {})),
      device_(other.device_),
      inode_(other.inode_) {}

SocketFile& SocketFile::operator=(SocketFile&& other) noexcept {
  if (this == &other) return *this;
  unlink();
  fd_ = std::move(other.fd_);
  path_ = std::exchange(other.path_, {});
  device_ = other.device_;
  inode_ = other.inode_;
  return *this;
}

SocketFile::~SocketFile() { unlink(); }

void SocketFile::unlink() noexcept {
  if (path_.empty()) return;
  struct stat info {};
  const bool ours =
      ::lstat(path_.c_str(), &info) == 0 && info.st_dev == device_ && info.st_ino == inode_;
  if (ours) ::unlink(path_.c_str());
  path_.clear();
}

}  // namespace tern::daemon
