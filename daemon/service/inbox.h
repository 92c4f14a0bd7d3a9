#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <utility>

namespace tern::daemon {

// Things that threads hand to another. Who puts one in takes no lock of ours: the owner of one is
// waited for as long as it gets no processor. There is no bound: who puts things in has one.
//
// Thread: any.
template <typename Thing>
class Inbox {
 public:
  Inbox() = default;
  ~Inbox() { take_all(); }
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;

  void put(Thing thing) {
    auto entry = std::make_unique<Entry>(std::move(thing), last_.load(std::memory_order_relaxed));
    while (!last_.compare_exchange_weak(entry->before, entry.get(), std::memory_order_release,
                                        std::memory_order_relaxed)) {
    }
    (void)entry.release();  // the inbox's now
  }

  // All that were put in, the oldest first.
  std::deque<Thing> take_all() {
    std::deque<Thing> all;
    std::unique_ptr<Entry> entry(last_.exchange(nullptr, std::memory_order_acquire));
    while (entry) {
      all.push_front(std::move(entry->thing));
      entry.reset(entry->before);
    }
    return all;
  }

 private:
  struct Entry {
    Entry(Thing one, Entry* last) : thing(std::move(one)), before(last) {}
    Thing thing;
    Entry* before;
  };

  std::atomic<Entry*> last_{nullptr};
};

}  // namespace tern::daemon
