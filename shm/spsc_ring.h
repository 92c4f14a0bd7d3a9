#pragma once

// A bounded ring between two processes that do not trust each other: one producer, one consumer.
//
// Words: tail counts the entries ever published (written by the producer), head those ever taken
// (written by the consumer). Each side keeps its own count privately and only ever writes it to the
// shared memory; what it reads there is the other side's count, which may be nonsense. A count that
// could not come from a correct other side makes the ring corrupt for good; a slot is chosen by the
// private count alone, so nonsense never leads outside the entries.
//
// Order: the counts are stored and loaded seq_cst. acquire/release would do for the entries, but a
// producer also looks whether the consumer sleeps after it has published (wakeup.h), and the
// consumer looks at tail after it has announced its sleep. Only a single total order of these four
// accesses excludes that each misses the other. On x86 it costs one xchg per published entry.

#include <atomic>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "shm/layout.h"

namespace tern::shm {

enum class RingResult : std::uint8_t {
  ok,
  would_block,  // full for a producer, empty for a consumer
  corrupt,      // the other side wrote an impossible count; stays so
};

// Where a ring lies. entries.size() is a power of two and never comes from shared memory.
template <typename Entry>
struct RingMemory {
  RingIndex* index = nullptr;
  std::span<Entry> entries;
};

// Thread: one at a time. A new ring has both counts zero, and so has a new producer or consumer.
template <typename Entry>
class RingProducer {
  static_assert(std::is_trivially_copyable_v<Entry>);

 public:
  RingProducer() noexcept = default;
  explicit RingProducer(RingMemory<Entry> memory) noexcept : memory_(memory) {}

  RingResult try_push(const Entry& entry) noexcept {
    const RingResult room = check_room(1);
    if (room != RingResult::ok) return room;
    write(entry);
    publish();
    return RingResult::ok;
  }

  // The same in two steps, for several entries that the consumer gets at once. REQUIRES: room.
  void write(const Entry& entry) noexcept {
    std::memcpy(&memory_.entries[tail_ & (memory_.entries.size() - 1)], &entry, sizeof(Entry));
    ++tail_;
  }
  void publish() noexcept {
    std::atomic_ref<std::uint64_t>(memory_.index->tail).store(tail_, std::memory_order_seq_cst);
  }

  // Whether n more entries fit. Room never shrinks while this producer does not push.
  bool has_room(std::uint64_t n) noexcept { return check_room(n) == RingResult::ok; }

  // Entries published and, as far as the consumer admits, not yet taken. 0 when corrupt.
  std::uint64_t size() noexcept { return refresh() ? tail_ - cached_head_ : 0; }

  bool corrupt() const noexcept { return corrupt_; }
  std::uint64_t capacity() const noexcept { return memory_.entries.size(); }

 private:
  RingResult check_room(std::uint64_t n) noexcept {
    if (corrupt_) return RingResult::corrupt;
    if (n > capacity()) return RingResult::would_block;
    if (tail_ - cached_head_ <= capacity() - n) return RingResult::ok;
    if (!refresh()) return RingResult::corrupt;
    return tail_ - cached_head_ <= capacity() - n ? RingResult::ok : RingResult::would_block;
  }

  // Between the last head seen and the own tail is where a head can be.
  bool refresh() noexcept {
    if (corrupt_) return false;
    const std::uint64_t head =
        std::atomic_ref<std::uint64_t>(memory_.index->head).load(std::memory_order_seq_cst);
    if (head - cached_head_ > tail_ - cached_head_) {
      corrupt_ = true;
      return false;
    }
    cached_head_ = head;
    return true;
  }

  RingMemory<Entry> memory_;
  std::uint64_t tail_ = 0;
  std::uint64_t cached_head_ = 0;
  bool corrupt_ = false;
};

// Thread: one at a time.
template <typename Entry>
class RingConsumer {
  static_assert(std::is_trivially_copyable_v<Entry>);

 public:
  RingConsumer() noexcept = default;
  explicit RingConsumer(RingMemory<Entry> memory) noexcept : memory_(memory) {}

  // Copies the next entry out. The copy is the caller's alone: the other side cannot change it.
  RingResult try_pop(Entry& entry) noexcept {
    if (corrupt_) return RingResult::corrupt;
    if (head_ == cached_tail_) {
      if (!refresh()) return RingResult::corrupt;
      if (head_ == cached_tail_) return RingResult::would_block;
    }
    std::memcpy(&entry, &memory_.entries[head_ & (memory_.entries.size() - 1)], sizeof(Entry));
    // The compiler may not drop the copy and read the shared bytes again later, when they were
    // checked.
    asm volatile("" : : "r"(&entry) : "memory");
    ++head_;
    std::atomic_ref<std::uint64_t>(memory_.index->head).store(head_, std::memory_order_seq_cst);
    return RingResult::ok;
  }

  // Whether try_pop would answer would_block. False for a corrupt ring, so that a consumer about to
  // sleep looks at it.
  bool empty() noexcept { return refresh() && head_ == cached_tail_; }

  // Entries that wait to be taken; 0 when corrupt.
  std::uint64_t size() noexcept { return refresh() ? cached_tail_ - head_ : 0; }

  bool corrupt() const noexcept { return corrupt_; }
  std::uint64_t capacity() const noexcept { return memory_.entries.size(); }

 private:
  // Between the last tail seen and the own head plus the capacity is where a tail can be.
  bool refresh() noexcept {
    if (corrupt_) return false;
    const std::uint64_t tail =
        std::atomic_ref<std::uint64_t>(memory_.index->tail).load(std::memory_order_seq_cst);
    if (tail - cached_tail_ > capacity() - (cached_tail_ - head_)) {
      corrupt_ = true;
      return false;
    }
    cached_tail_ = tail;
    return true;
  }

  RingMemory<Entry> memory_;
  std::uint64_t head_ = 0;
  std::uint64_t cached_tail_ = 0;
  bool corrupt_ = false;
};

}  // namespace tern::shm
