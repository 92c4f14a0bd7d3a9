#pragma once

// First-in, first-out queues through the slots of one table. A slot is in one queue at most, and
// leaves it from any place. Nothing is allocated but for a table that grows.

#include <cstdint>
#include <vector>

#include "base/check.h"
#include "collective/slots.h"

namespace tern::collective {

class SlotQueues {
 public:
  explicit SlotQueues(std::uint32_t queues) : ends_(queues) {}

  // Room for slots below `slots`.
  void grow(std::uint32_t slots) {
    if (slots > links_.size()) links_.resize(slots);
  }

  bool has(std::uint32_t slot) const noexcept { return links_[slot].queue != kNoSlot; }
  std::uint32_t first(std::uint32_t queue) const noexcept { return ends_[queue].first; }
  std::uint32_t after(std::uint32_t slot) const noexcept { return links_[slot].next; }

  // REQUIRES: the slot is in none.
  void add(std::uint32_t queue, std::uint32_t slot) noexcept {
    TERN_CHECK(!has(slot));
    Ends& ends = ends_[queue];
    links_[slot] = {queue, ends.last, kNoSlot};
    (ends.last == kNoSlot ? ends.first : links_[ends.last].next) = slot;
    ends.last = slot;
  }
  // Nothing happens to a slot that is in none.
  void remove(std::uint32_t slot) noexcept {
    if (!has(slot)) return;
    const Links links = links_[slot];
    Ends& ends = ends_[links.queue];
    (links.previous == kNoSlot ? ends.first : links_[links.previous].next) = links.next;
    (links.next == kNoSlot ? ends.last : links_[links.next].previous) = links.previous;
    links_[slot] = {};
  }
  void move_to(std::uint32_t queue, std::uint32_t slot) noexcept {
    remove(slot);
    add(queue, slot);
  }

 private:
  struct Ends {
    std::uint32_t first = kNoSlot, last = kNoSlot;
  };
  struct Links {
    std::uint32_t queue = kNoSlot;
    std::uint32_t previous = kNoSlot, next = kNoSlot;
  };

  std::vector<Ends> ends_;
  std::vector<Links> links_;
};

}  // namespace tern::collective
