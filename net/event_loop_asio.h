#pragma once

// The Boost.Asio side of an EventLoop, for the files that put sockets on it.

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <unordered_map>
#include <utility>
#include <vector>

#include "net/event_loop.h"

namespace tern::net {

// Memory for one outstanding wait of a descriptor, so that waiting again allocates nothing. Must be
// owned by what the completion keeps alive.
class WaitMemory {
 public:
  void* allocate(std::size_t bytes) {
    if (used_ || bytes > sizeof bytes_) return ::operator new(bytes);
    used_ = true;
    return bytes_;
  }
  void deallocate(void* memory) noexcept {
    if (memory == bytes_) {
      used_ = false;
    } else {
      ::operator delete(memory);
    }
  }

 private:
  alignas(std::max_align_t) std::byte bytes_[256];
  bool used_ = false;
};

template <typename T>
class WaitAllocator {
 public:
  using value_type = T;
  explicit WaitAllocator(WaitMemory& memory) noexcept : memory_(&memory) {}
  template <typename U>
  WaitAllocator(const WaitAllocator<U>& other) noexcept : memory_(other.memory_) {}
  T* allocate(std::size_t count) { return static_cast<T*>(memory_->allocate(count * sizeof(T))); }
  void deallocate(T* memory, std::size_t) noexcept { memory_->deallocate(memory); }
  friend bool operator==(const WaitAllocator& a, const WaitAllocator& b) noexcept {
    return a.memory_ == b.memory_;
  }

 private:
  template <typename U>
  friend class WaitAllocator;
  WaitMemory* memory_;
};

struct EventLoop::Impl {
  // It waits for the kernel again once it has had its event.
  class Waiter {
   public:
    // It may be late: the kernel is asked about the present, and so tells what came meanwhile.
    virtual void wait() = 0;

   protected:
    Waiter() = default;
    ~Waiter() = default;
  };
  class Watched;

  Impl();
  // To wait again costs a system call: first the event is worked off, whose results others wait for.
  // The loop sees to it at the end of the next poll() that asks the kernel, and before it sleeps.
  void wait_later(std::shared_ptr<Waiter> waiter) { waiters.push_back(std::move(waiter)); }
  void begin_waits();
  void begin_doorbell_waits();

  // One thread runs it, so the reactor needs no locks; look-ups of names post from threads of their
  // own, which this hint still allows.
  boost::asio::io_context io{BOOST_ASIO_CONCURRENCY_HINT_UNSAFE_IO};
  // Asio stops for good when nobody waits, and all may be about to wait again.
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> never_stop{
      io.get_executor()};
  std::vector<std::shared_ptr<Waiter>> waiters;
  // Doorbells that are to be drained and waited for: at the end of a poll() that has run no handler,
  // of the second otherwise, and before the loop sleeps.
  std::vector<std::shared_ptr<Watched>> rung;
  std::shared_ptr<Watched> wake;
  std::unordered_map<std::uint64_t, std::shared_ptr<Watched>> watched;
  std::uint64_t next_handle = 1;
  // What was last done. Asio counts more as handlers than has_event does: a socket that can be
  // written to is reported each time that it waits to be readable.
  enum class Since : std::uint8_t {
    event,                     // a doorbell or a connection has ended a wait()
    skipped_poll,              // and a poll() has asked nobody
    poll_that_left_doorbells,  // it has run handlers, and `rung` is not empty
    poll                       // nobody is left in the lists
  };
  Since since = Since::poll;
  bool has_event = false;
};

// A descriptor that somebody watches.
class EventLoop::Impl::Watched final : public Waiter, public std::enable_shared_from_this<Watched> {
 public:
  // `call` is called at once, or as a doorbell's `drain` before the next wait.
  Watched(Impl& loop, std::function<void()> call, bool is_doorbell)
      : loop_(loop), descriptor_(loop.io), call_(std::move(call)), is_doorbell_(is_doorbell) {}

  Status open(Fd fd);
  void wait() override;
  void remove() noexcept;
  int fd() noexcept { return descriptor_.native_handle(); }

 private:
  void on_event();

  Impl& loop_;
  boost::asio::posix::stream_descriptor descriptor_;
  std::function<void()> call_;
  WaitMemory memory_;
  bool is_doorbell_;
  bool has_rung_ = false;
  bool removed_ = false;
};

}  // namespace tern::net
