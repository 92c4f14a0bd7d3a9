#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <utility>

namespace tern {

// Owns one file descriptor and nothing else.
class Fd {
 public:
  Fd() noexcept = default;
  explicit Fd(int fd) noexcept : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(other.release()) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() { reset(); }

  int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }
  int release() noexcept { return std::exchange(fd_, -1); }
  void reset(int fd = -1) noexcept {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

// Empty, with errno, if the process has as many descriptors as it may have.
inline Fd duplicate(int fd) noexcept { return Fd(::fcntl(fd, F_DUPFD_CLOEXEC, 0)); }

}  // namespace tern
