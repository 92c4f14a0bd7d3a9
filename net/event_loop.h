#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/clock.h"
#include "base/fd.h"
#include "base/result.h"

namespace tern::net {

// One thread's place to sleep: sockets, descriptors of clients, and wake-ups from other threads, on
// one Boost.Asio io_context. The TCP transport and acceptor of the thread live on it.
class EventLoop {
 public:
  EventLoop();
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // Runs what is ready; returns the number of handlers run: none in the first call after a wait()
  // that a doorbell or a TCP connection has ended. A doorbell that is drained here does not count:
  // who may have rung it must be looked at between the last poll() and a wait().
  int poll();
  // From now on poll() runs handlers for so long, and one more: those left are the next to run.
  // REQUIRES: the clock outlives the loop.
  void bound_polls(const Clock& clock, std::uint64_t ns);
  // Sleeps until something is ready, wake() is called or timeout_ns has passed, and runs one handler.
  // Returns the number of handlers run. Others of the same moment are for the next poll(). After a
  // doorbell or a TCP connection that is the second from here: the first asks nobody, so that the
  // event is worked off before. A wait() before the second returns 0 at once, so that the thread
  // looks again; and so does one after a poll() that has run handlers and left a doorbell undrained.
  int wait(std::uint64_t timeout_ns);
  // From 31 years on a timeout is none.
  static constexpr std::uint64_t kForeverNs = 1'000'000'000'000'000'000;
  // From any thread: ends the current or next wait().
  void wake() noexcept;
  // Ends wait() whenever fd is readable and calls `readable` (which drains it), until unwatch() with
  // the handle that this answers. io_error if fd is empty or the kernel cannot watch it.
  Result<std::uint64_t> watch(Fd fd, std::function<void()> readable);
  // The same of a descriptor that says nothing but that somebody has rung: `drain` is called in a
  // later poll(), so that a thread with one in each turn has done by then what it was woken for, and
  // before the loop sleeps again. A call may also come for nothing.
  Result<std::uint64_t> watch_doorbell(Fd fd, std::function<void()> drain);
  void unwatch(std::uint64_t handle);

  struct Impl;
  Impl& impl() noexcept { return *impl_; }

 private:
  Result<std::uint64_t> add(Fd fd, std::function<void()> call, bool is_doorbell);

  std::unique_ptr<Impl> impl_;
  const Clock* clock_ = nullptr;  // none: polls are bounded by their handlers alone
  std::uint64_t longest_poll_ns_ = 0;
};

}  // namespace tern::net
