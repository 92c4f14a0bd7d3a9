#pragma once

// How far the copying of an op's memory has come, as client and lanes share it: the input's
// watermark, which the client raises, and for each lane a list of pieces of the output that are
// delivered, whose length the lane raises. The two sides work on the same op meanwhile.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "shm/layout.h"

namespace tern::shm {

class CopyProgress {
 public:
  // Where it lies, or how much it takes.
  struct Shape {
    std::uint32_t lanes = 0;    // of the group
    std::uint32_t records = 0;  // of each lane's list, at most kMaxDeliveredRecords

    constexpr std::uint64_t bytes() const noexcept {
      return sizeof(CopiedMark) +
             std::uint64_t{lanes} *
                 (sizeof(DeliveredMark) + std::uint64_t{records} * sizeof(DeliveredRecord));
    }
  };

  CopyProgress() = default;
  // REQUIRES: shape.bytes() of memory on a cache line, shared; zeros before the op is submitted.
  CopyProgress(std::byte* memory, const Shape& shape) noexcept : memory_(memory), shape_(shape) {}

  bool exists() const noexcept { return memory_ != nullptr; }
  const Shape& shape() const noexcept { return shape_; }

  // ---- The input. Believe nothing that the other side has written. ----
  // As with an entry (shm/wakeup.h): the client raises it, then looks whether the lane sleeps.
  void raise_input(std::uint64_t bytes) noexcept {
    input().store(bytes, std::memory_order_seq_cst);
  }
  std::uint64_t input_bytes() const noexcept { return input().load(std::memory_order_seq_cst); }

  // ---- The output ----
  // REQUIRES, for all: lane < shape().lanes, index < shape().records.
  void deliver(std::uint32_t lane, std::uint32_t index, const DeliveredRecord& record) noexcept {
    std::memcpy(place(lane, index), &record, sizeof record);
    delivered(lane).store(std::uint64_t{index} + 1, std::memory_order_release);
  }
  std::uint64_t delivered_records(std::uint32_t lane) const noexcept {
    return delivered(lane).load(std::memory_order_acquire);
  }
  DeliveredRecord record(std::uint32_t lane, std::uint32_t index) const noexcept {
    DeliveredRecord record;
    std::memcpy(&record, place(lane, index), sizeof record);
    return record;
  }

 private:
  std::atomic_ref<std::uint64_t> input() const noexcept {
    return std::atomic_ref<std::uint64_t>(reinterpret_cast<CopiedMark*>(memory_)->input_bytes);
  }
  std::atomic_ref<std::uint64_t> delivered(std::uint32_t lane) const noexcept {
    std::byte* const mark = memory_ + sizeof(CopiedMark) + lane * sizeof(DeliveredMark);
    return std::atomic_ref<std::uint64_t>(reinterpret_cast<DeliveredMark*>(mark)->records);
  }
  std::byte* place(std::uint32_t lane, std::uint32_t index) const noexcept {
    const std::size_t lists = sizeof(CopiedMark) + shape_.lanes * sizeof(DeliveredMark);
    return memory_ + lists + (std::size_t{lane} * shape_.records + index) * sizeof(DeliveredRecord);
  }

  std::byte* memory_ = nullptr;
  Shape shape_;
};

}  // namespace tern::shm
