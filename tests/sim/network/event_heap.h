#pragma once

// What happens next, and when. Events at the same time come in the order in which they were added,
// so that a run is one run.

#include <algorithm>
#include <cstdint>
#include <vector>

namespace tern::sim {

template <typename What>
class EventHeap {
 public:
  void add(std::uint64_t at_ns, const What& what) {
    events_.push_back({at_ns, next_++, what});
    std::push_heap(events_.begin(), events_.end());
  }
  bool empty() const noexcept { return events_.empty(); }
  // Never, if there is none.
  std::uint64_t next_ns() const noexcept {
    return empty() ? ~std::uint64_t{0} : events_.front().at_ns;
  }
  // REQUIRES: not empty.
  What take() {
    std::pop_heap(events_.begin(), events_.end());
    const What what = events_.back().what;
    events_.pop_back();
    return what;
  }

 private:
  struct Event {
    std::uint64_t at_ns;
    std::uint64_t order;
    What what;
    // The heap's top is the largest.
    bool operator<(const Event& other) const noexcept {
      return at_ns != other.at_ns ? at_ns > other.at_ns : order > other.order;
    }
  };

  std::vector<Event> events_;
  std::uint64_t next_ = 0;
};

}  // namespace tern::sim
