#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "base/fd.h"
#include "base/result.h"

namespace tern::daemon {

// A Unix socket that listens at a path of the file system, and the file that goes with it.
class SocketFile {
 public:
  SocketFile() noexcept = default;
  SocketFile(SocketFile&& other) noexcept;
  SocketFile& operator=(SocketFile&& other) noexcept;
  // Unlinks the file, unless another socket has taken its place.
  ~SocketFile();

  // type is SOCK_STREAM or SOCK_SEQPACKET. The socket does not block. A socket file that nobody
  // listens on is replaced; a listening one or any other file is Errc::already_exists. Nobody can
  // connect before the file has its mode.
  static Result<SocketFile> listen(const std::string& path, int type, std::uint32_t mode);

  // The listening socket; the caller owns it from now on, the file stays with this object.
  Fd take_fd() noexcept { return std::move(fd_); }
  int fd() const noexcept { return fd_.get(); }

 private:
  void unlink() noexcept;

  Fd fd_;
  std::string path_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

}  // namespace tern::daemon
