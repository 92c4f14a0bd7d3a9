#include "net/frame_fifo.h"

#include <algorithm>

namespace tern::net {

FrameRecord& FrameFifo::push() {
  if (size() == ring_.size()) grow_ring();
  if (free_.empty()) grow_pool();
  FrameRecord* record = free_.back();
  free_.pop_back();
  ring_[next_ & (ring_.size() - 1)] = record;
  ++next_;
  return *record;
}

void FrameFifo::pop() noexcept {
  FrameRecord& record = front();
  ++first_;
  record.body = {};
  if (record.copied.capacity() > kKeepBytes) std::vector<std::byte>().swap(record.copied);
  free_.push_back(&record);  // has room: grow_pool reserves for all records
}

void FrameFifo::grow_ring() {
  const std::size_t size = std::max<std::size_t>(kBlockRecords, 2 * ring_.size());
  std::vector<FrameRecord*> ring(size, nullptr);
  for (std::uint64_t seq = first_; seq != next_; ++seq) ring[seq & (size - 1)] = &at(seq);
  ring_.swap(ring);
}

void FrameFifo::grow_pool() {
  blocks_.push_back(std::make_unique<FrameRecord[]>(kBlockRecords));
  free_.reserve(blocks_.size() * kBlockRecords);
  for (std::size_t i = 0; i < kBlockRecords; ++i) free_.push_back(&blocks_.back()[i]);
}

}  // namespace tern::net
