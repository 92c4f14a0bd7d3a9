#pragma once

// The Boost.Asio side of an EventLoop, for the files that put sockets on it.

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <unordered_map>

#include "net/event_loop.h"

namespace tern::net {

struct EventLoop::Impl {
  struct Watched {
    Watched(boost::asio::io_context& io_in, std::function<void()> readable_in)
        : descriptor(io_in), readable(std::move(readable_in)) {}
    boost::asio::posix::stream_descriptor descriptor;
    std::function<void()> readable;
    bool removed = false;
  };

  Impl();
  static void wait_readable(std::shared_ptr<Watched> watched);

  // One thread runs it, so the reactor needs no locks; look-ups of names post from threads of their
  // own, which this hint still allows.
  boost::asio::io_context io{BOOST_ASIO_CONCURRENCY_HINT_UNSAFE_IO};
  std::shared_ptr<Watched> wake;
  std::unordered_map<std::uint64_t, std::shared_ptr<Watched>> watched;
  std::uint64_t next_handle = 1;
};

// Memory for one outstanding wait of a socket, so that waiting again allocates nothing. Must be
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

}  // namespace tern::net
