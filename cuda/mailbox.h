#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

// What threads of the driver tell the completion thread: an operation's work on a stream is done.
// No call of the driver is ever made under its mutex, so that those threads do not wait for one.
namespace tern::cuda {

class Mailbox {
 public:
  // Which operation of the table, and which one of those that had its place.
  struct Note {
    std::uint32_t place;
    std::uint64_t number;
  };

  // Room for `most` notes without allocation; nobody has two on their way.
  static Result<std::unique_ptr<Mailbox>> create(std::size_t most) {
    std::unique_ptr<Mailbox> made(new Mailbox(Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))));
    if (!made->fd_) return fail_errno(Errc::io_error, "cannot make an eventfd", errno);
    made->notes_.reserve(2 * most);
    return made;
  }

  // Readable while something is there.
  int fd() const noexcept { return fd_.get(); }

  void post(const Note& note) {
    const std::lock_guard lock(mutex_);
    notes_.push_back(note);
    ring();
  }
  // Wakes the reader with nothing to read.
  void wake() {
    const std::lock_guard lock(mutex_);
    ring();
  }
  // Writes what is there to `notes`.
  void take(std::vector<Note>& notes) {
    const std::lock_guard lock(mutex_);
    std::uint64_t rung = 0;
    static_cast<void>(!::read(fd_.get(), &rung, sizeof rung));
    notes.assign(notes_.begin(), notes_.end());
    notes_.clear();
  }

 private:
  explicit Mailbox(Fd fd) noexcept : fd_(std::move(fd)) {}

  void ring() noexcept {
    const std::uint64_t one = 1;
    static_cast<void>(!::write(fd_.get(), &one, sizeof one));
  }

  std::mutex mutex_;
  std::vector<Note> notes_;
  Fd fd_;
};

}  // namespace tern::cuda
