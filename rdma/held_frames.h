#pragma once

// Frames of the user's that wait until it is settled what they travel on.

#include <cstddef>

#include "net/outgoing_queue.h"

namespace tern::rdma {

class HeldFrames {
 public:
  void push(const net::OutgoingFrame& frame) {
    frames_.push(frame);
    bytes_ += frame.head.size() + frame.body.size();
  }
  bool empty() const noexcept { return frames_.empty(); }
  std::size_t bytes() const noexcept { return bytes_; }
  // Gives each to `send`, in order, and holds none afterwards.
  template <typename Send>
  void release(Send&& send) {
    for (; !frames_.empty(); frames_.pop()) send(frames_.at(0));
    bytes_ = 0;
  }

 private:
  net::OutgoingQueue frames_;
  std::size_t bytes_ = 0;
};

}  // namespace tern::rdma
