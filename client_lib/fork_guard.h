#pragma once

// Knows whether this process is a child of the one that made it. The kernel zeroes the page in
// every child (MADV_WIPEONFORK), so the question costs one load and no system call.

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/result.h"

namespace tern::client_lib {

class ForkGuard {
 public:
  static Result<ForkGuard> create() {
    const long page_bytes = ::sysconf(_SC_PAGESIZE);
    const auto bytes = static_cast<std::size_t>(page_bytes > 0 ? page_bytes : 4096);
    void* page = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return fail_errno(Errc::out_of_memory, "cannot map a page", errno);
    ForkGuard guard;
    guard.page_ = static_cast<unsigned char*>(page);
    guard.bytes_ = bytes;
    if (::madvise(page, bytes, MADV_WIPEONFORK) != 0) {
      return fail_errno(Errc::unsupported, "the kernel cannot mark forked children", errno);
    }
    *guard.page_ = 1;
    return guard;
  }

  ForkGuard() noexcept = default;
  ForkGuard(ForkGuard&& other) noexcept
      : page_(std::exchange(other.page_, nullptr)), bytes_(other.bytes_) {}
  ForkGuard& operator=(ForkGuard&& other) noexcept {
    std::swap(page_, other.page_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;
  ~ForkGuard() {
    if (page_ != nullptr) ::munmap(page_, bytes_);
  }

  bool forked() const noexcept { return page_ == nullptr || *page_ == 0; }

 private:
  unsigned char* page_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace tern::client_lib
