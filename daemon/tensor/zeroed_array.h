#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "base/free_slice.h"

namespace tern::daemon {

// Numbers that are zero, and cost no memory, until their first use.
template <typename Value>
class ZeroedArray {
 public:
  // False: no memory.
  [[nodiscard]] bool allocate(std::uint64_t count) noexcept {
    values_.reset(static_cast<Value*>(std::calloc(count, sizeof(Value))));
    bytes_ = values_ ? count * sizeof(Value) : 0;
    return values_ != nullptr;
  }

  explicit operator bool() const noexcept { return values_ != nullptr; }
  Value* get() const noexcept { return values_.get(); }
  Value& operator[](std::uint64_t index) const noexcept { return values_[index]; }

  // Frees a part that takes less than a millisecond. True: something is left. The values must not
  // be used any more.
  bool free_some() noexcept {
    const std::uint64_t left = values_ ? without_last_slice(values_.get(), bytes_) : 0;
    if (left == 0) {
      values_.reset();
      bytes_ = 0;
      return false;
    }
    // The page that the end shares may have something else.
    static const auto kPageBytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    std::byte* const begin = static_cast<std::byte*>(static_cast<void*>(values_.get()));
    const std::uint64_t last_page = (std::bit_cast<std::uintptr_t>(begin) + bytes_) % kPageBytes;
    if (bytes_ - left > last_page) {
      ::madvise(begin + left, bytes_ - left - last_page, MADV_DONTNEED);
    }
    bytes_ = left;
    return true;
  }

 private:
  struct Free {
    void operator()(Value* values) const noexcept { std::free(values); }
  };

  std::unique_ptr<Value[], Free> values_;
  std::uint64_t bytes_ = 0;  // that have not been freed
};

}  // namespace tern::daemon
