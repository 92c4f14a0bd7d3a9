#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "codec/device/emulation/memory_watch.h"

namespace tern::codec::device::emulation {

struct SharedShape {
  std::size_t elements;
  std::size_t element_bytes;

  friend bool operator==(const SharedShape&, const SharedShape&) = default;
};

// One array of a block's shared memory.
struct SharedArray {
  SharedArray(const SharedShape& of, std::size_t at);

  SharedShape shape;
  std::size_t offset;  // in the block's shared memory, which decides the banks
  std::vector<std::max_align_t> memory;
  MemoryWatch watch;

  std::byte* data() noexcept { return static_cast<std::byte*>(static_cast<void*>(memory.data())); }
};

// A block's shared memory: every thread of the block asks for the same arrays in the same order.
class SharedMemory {
 public:
  static constexpr std::size_t kAlignment = 16;

  // Null: an array of another shape was made under this number.
  SharedArray* array(std::size_t number, const SharedShape& shape);
  std::size_t bytes() const noexcept { return bytes_; }
  void clear() noexcept;

 private:
  std::vector<std::unique_ptr<SharedArray>> arrays_;
  std::size_t bytes_ = 0;
};

}  // namespace tern::codec::device::emulation
