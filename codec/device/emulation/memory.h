#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "codec/device/emulation/memory_watch.h"

// The device's memory: arrays that a launch may use, with the history of each element.
namespace tern::codec::device::emulation {

// One array, found by any address in it. Watched by bytes where `granule` is 1, by elements
// otherwise.
struct Allocation {
  Allocation(std::byte* at, std::size_t byte_count, std::size_t element_bytes, bool written);
  ~Allocation();
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;

  // Null if the address is in no array.
  static Allocation* find(const void* address) noexcept;

  std::byte* begin;
  std::size_t bytes;
  std::size_t granule;
  MemoryWatch watch;
};

// An array in the device's memory. What was not given values counts as unwritten.
template <typename T>
class Buffer {
 public:
  explicit Buffer(std::size_t count) : Buffer(count, false) {}
  explicit Buffer(std::span<const T> values) : Buffer(values.size(), true) {
    if (!values.empty()) std::memcpy(data(), values.data(), values.size_bytes());
  }

  T* data() noexcept { return static_cast<T*>(static_cast<void*>(allocation_->begin)); }
  std::size_t size() const noexcept { return count_; }
  std::span<T> span() noexcept { return {data(), count_}; }
  std::vector<T> values() { return {data(), data() + count_}; }

 private:
  static constexpr std::size_t kAlignment = 256;  // as cudaMalloc's

  // Filled with bytes that make no sense, so that reading too much shows in the results as well.
  Buffer(std::size_t count, bool written) : count_(count) {
    const std::size_t bytes = (count * sizeof(T) + kAlignment) / kAlignment * kAlignment;
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, bytes)));
    std::memset(memory_.get(), 0xcd, bytes);
    allocation_ = std::make_unique<Allocation>(memory_.get(), count * sizeof(T),
                                               sizeof(T) <= 4 ? sizeof(T) : 1, written);
  }

  struct Free {
    void operator()(std::byte* memory) const noexcept { std::free(memory); }
  };

  std::size_t count_;
  std::unique_ptr<std::byte, Free> memory_;
  std::unique_ptr<Allocation> allocation_;
};

}  // namespace tern::codec::device::emulation
