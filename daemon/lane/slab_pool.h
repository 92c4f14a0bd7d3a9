#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "daemon/lane/mapping.h"
#include "daemon/lane/operand.h"

namespace tern::daemon {

// Hands out equal pieces of memory by index, to one thread.
class SlabPool {
 public:
  static constexpr std::uint32_t kNone = 0xffffffff;

  // In the next piece of `memory`, which outlives the pool.
  SlabPool(Mapping& memory, std::uint32_t count, std::size_t slab_bytes)
      : slab_bytes_(rounded(slab_bytes)),
        count_(count),
        region_(memory.take(bytes_for(count, slab_bytes))) {
    free_.resize(count);
    // Popped from the back: low indices first, so that few pages stay warm.
    for (std::uint32_t i = 0; i < count; ++i) free_[i] = count - 1 - i;
  }
  // Operands refer to the pool where it is: none has been given out.
  SlabPool(SlabPool&&) noexcept = default;
  SlabPool& operator=(SlabPool&&) = delete;

  // What it takes of a mapping.
  static std::uint64_t bytes_for(std::uint32_t count, std::size_t slab_bytes) noexcept {
    return Mapping::piece_bytes(std::uint64_t{count} * rounded(slab_bytes));
  }

  // kNone when all are taken or promised.
  std::uint32_t take() noexcept {
    if (free_count() == 0) return kNone;
    return pop();
  }
  // A promise that take_promised() will find one. Who writes to it much later takes it then: the
  // one given back last, which is still in the cache.
  void promise() noexcept {
    TERN_CHECK(free_count() > 0);
    ++promised_;
  }
  std::uint32_t take_promised() noexcept {
    withdraw_promise();
    return pop();
  }
  void withdraw_promise() noexcept {
    TERN_CHECK(promised_ > 0);
    --promised_;
  }
  void give(std::uint32_t index) noexcept {
    TERN_CHECK(index < count_ && free_.size() < count_);
    free_.push_back(index);
  }
  std::span<std::byte> slab(std::uint32_t index) const noexcept {
    TERN_CHECK(index < count_);
    return {region_.base + std::size_t{index} * slab_bytes_, slab_bytes_};
  }
  // The same as an operand, which is valid as long as the pool.
  Operand operand(std::uint32_t index) const noexcept {
    TERN_CHECK(index < count_);
    return {&region_, std::uint64_t{index} * slab_bytes_, slab_bytes_};
  }
  // All slabs.
  const Region& region() const noexcept { return region_; }
  std::uint32_t free_count() const noexcept {
    return static_cast<std::uint32_t>(free_.size()) - promised_;
  }
  std::uint32_t count() const noexcept { return count_; }
  // Gives the pages back to the kernel; the contents of all slabs are lost. REQUIRES: all are free.
  void drop_pages() noexcept {
    if (free_.size() == count_) ::madvise(region_.base, region_.bytes, MADV_DONTNEED);
  }

 private:
  static constexpr std::size_t rounded(std::size_t slab_bytes) noexcept {
    return (slab_bytes + 63) / 64 * 64;
  }
  std::uint32_t pop() noexcept {
    const std::uint32_t index = free_.back();
    free_.pop_back();
    return index;
  }

  std::size_t slab_bytes_;
  std::uint32_t count_;
  std::uint32_t promised_ = 0;
  Region region_;
  std::vector<std::uint32_t> free_;
};

}  // namespace tern::daemon
