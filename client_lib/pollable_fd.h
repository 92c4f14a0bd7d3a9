#pragma once

// What tern_fd() hands out: an epoll descriptor that is readable while either of two things is. The
// notify socket says that a lane has completed something since it was armed; only the daemon can
// write to it. The level (an eventfd of our own) says that ops have ended which nobody has been
// told of: without it, an end that one thread's test() took from the ring would be invisible to
// poll.

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "base/fd.h"
#include "base/result.h"
#include "shm/wakeup.h"

namespace tern::client_lib {

class PollableFd {
 public:
  static Result<PollableFd> create(int notify_fd) {
    PollableFd made;
    made.epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
    made.level_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    epoll_event event{};
    event.events = EPOLLIN;
    if (!made.epoll_ || !made.level_ ||
        ::epoll_ctl(made.fd(), EPOLL_CTL_ADD, notify_fd, &event) != 0 ||
        ::epoll_ctl(made.fd(), EPOLL_CTL_ADD, made.level_.get(), &event) != 0) {
      return fail_errno(Errc::io_error, "cannot make a pollable descriptor", errno);
    }
    return made;
  }

  int fd() const noexcept { return epoll_.get(); }

  void set_level(bool readable) noexcept {
    if (readable == readable_) return;
    readable_ = readable;
    std::uint64_t value = 1;
    const ssize_t rc = readable ? ::write(level_.get(), &value, sizeof value)
                                : ::read(level_.get(), &value, sizeof value);
    (void)rc;
  }

  // Takes the bytes that lanes have sent, and asks for the next one where a lane has taken the last
  // request. True: it has completed something that is to be looked for now.
  bool rearm(shm::SegmentHeader& header, int notify_fd) noexcept {
    // A lane takes the request before it sends its byte, which may come when another request is
    // out. Before the look at that: its own byte is not to be taken as an earlier one.
    if (awaited_ > 0) take(shm::drain_notify(notify_fd));
    if (shm::notify_armed(header)) return false;
    awaited_ += is_armed_ ? 1 : 0;
    take(shm::drain_notify(notify_fd));
    shm::arm_notify(header);
    is_armed_ = true;
    return true;
  }

  void close_fds() noexcept {
    epoll_.reset();
    level_.reset();
  }

 private:
  void take(std::size_t bytes) noexcept { awaited_ -= std::min(awaited_, bytes); }

  Fd epoll_;
  Fd level_;
  bool readable_ = false;
  bool is_armed_ = false;
  std::size_t awaited_ = 0;  // bytes of requests that were taken
};

}  // namespace tern::client_lib
