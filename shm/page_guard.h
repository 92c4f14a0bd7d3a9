#pragma once

// What a program meets in memory that it shares with a process that it does not trust: a page that
// the kernel has no memory for, because the machine's, or what may be promised of it
// (vm.overcommit_memory = 2), is spent; or one that is left absent (shm/absent_pages.h). To touch
// such a page raises SIGBUS, which ends a process.
// The other side can give its pages back at any time, so that no check beforehand helps.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "base/result.h"

namespace tern::shm {

// Guards one mapping from the moment it is made until it is unmapped: where a page cannot be had,
// the process goes on with other memory in the page's place. What is read there means nothing, and
// what is written reaches nobody; has_replaced() says that it has come to that.
//
// The first guard installs a handler for SIGBUS. One outside every guarded mapping goes to the
// handler that was there before.
//
// Thread: any, one at a time; has_replaced() any.
class PageGuard {
 public:
  // The mapping begins at a page. out_of_memory: there is none for what would take a page's place.
  static Result<PageGuard> over(std::span<std::byte> mapping);

  PageGuard() noexcept = default;
  PageGuard(PageGuard&& other) noexcept : watch_(std::exchange(other.watch_, nullptr)) {}
  PageGuard& operator=(PageGuard&& other) noexcept {
    std::swap(watch_, other.watch_);
    return *this;
  }
  PageGuard(const PageGuard&) = delete;
  PageGuard& operator=(const PageGuard&) = delete;
  ~PageGuard();

  bool has_replaced() const noexcept {
    return watch_ != nullptr && watch_->replaced.load(std::memory_order_relaxed);
  }
  // Only the first so many bytes are guarded from now on: the rest is about to be unmapped.
  void shrink(std::uint64_t bytes) noexcept;

  // What the handler knows of one mapping. Never freed, because the handler may look at it at any
  // time, and used again.
  struct Watch {
    std::atomic<std::uint32_t> version{0};  // odd while begin and end are changed
    std::atomic<std::uintptr_t> begin{0};
    std::atomic<std::uintptr_t> end{0};  // as begin: watches nothing
    std::atomic<bool> replaced{false};
    void* spare = nullptr;
    Watch* next = nullptr;
    bool is_taken = false;
  };

 private:
  explicit PageGuard(Watch* watch) noexcept : watch_(watch) {}

  Watch* watch_ = nullptr;
};

}  // namespace tern::shm
