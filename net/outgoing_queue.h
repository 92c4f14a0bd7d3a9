#pragma once

#include <cstddef>
#include <vector>

#include "net/transport.h"

namespace tern::net {

// Frames on their way out. A ring that grows to its high-water mark.
class OutgoingQueue {
 public:
  bool empty() const noexcept { return first_ == next_; }
  std::size_t size() const noexcept { return next_ - first_; }
  const OutgoingFrame& at(std::size_t index) const noexcept {
    return ring_[(first_ + index) & (ring_.size() - 1)];
  }
  void push(const OutgoingFrame& frame);
  void pop() noexcept { ++first_; }

 private:
  std::vector<OutgoingFrame> ring_;  // size is a power of two
  std::size_t first_ = 0;
  std::size_t next_ = 0;
};

}  // namespace tern::net
