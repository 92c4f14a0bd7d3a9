#include "net/outgoing_queue.h"

#include <algorithm>

namespace tern::net {

void OutgoingQueue::push(const OutgoingFrame& frame) {
  if (size() == ring_.size()) {
    std::vector<OutgoingFrame> larger(std::max<std::size_t>(64, 2 * ring_.size()));
    const std::size_t count = size();
    for (std::size_t i = 0; i < count; ++i) larger[i] = at(i);
    ring_.swap(larger);
    first_ = 0;
    next_ = count;
  }
  ring_[next_ & (ring_.size() - 1)] = frame;
  ++next_;
}

}  // namespace tern::net
