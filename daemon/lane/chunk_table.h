#pragma once

// The memory of chunks that this node owns and has granted: an accumulator for the sum, and a slab
// for the contribution of every other node.

#include <cstdint>
#include <vector>

#include "collective/group_shape.h"
#include "daemon/lane/frame_memory.h"

namespace tern::daemon {

class ChunkTable {
 public:
  explicit ChunkTable(const collective::GroupShape& shape);
  // Before the first chunk. What chunks hold is charged to the job.
  void attach(FrameMemory& memory, LaneJob& job) noexcept {
    memory_ = &memory;
    job_ = &job;
  }

  // The accumulator is promised, and taken when the sum begins: the one given back last, which is
  // still in the cache.
  void reserve_sum(collective::ChunkId chunk, collective::OpId op);
  // The same, and room for all contributions in the worst case.
  void reserve(collective::ChunkId chunk, collective::OpId op);
  // The sum begins; where it is.
  Operand begin_sum(collective::ChunkId chunk);
  Operand sum(collective::ChunkId chunk) const noexcept;
  // The accumulator is a frame's now, until that is acknowledged.
  std::uint32_t lend_sum(collective::ChunkId chunk) noexcept;

  std::uint32_t slab(collective::ChunkId chunk, std::uint32_t node) const noexcept {
    return chunks_[chunk].slabs[node];
  }
  void keep_contribution(collective::ChunkId chunk, std::uint32_t node,
                         std::uint32_t bytes) noexcept {
    chunks_[chunk].bytes[node] = bytes;
  }
  Operand contribution(collective::ChunkId chunk, std::uint32_t node) const noexcept;
  void release_contribution(collective::ChunkId chunk, std::uint32_t node) noexcept;
  void give_slab(std::uint32_t slab) noexcept;

  // Gives back all that the chunk holds. `is_filling(node, slab)`: a frame is being received into
  // the slab; whoever receives it gives it back.
  template <typename IsFilling>
  void release(collective::ChunkId chunk, IsFilling is_filling) {
    release_sum(chunk);
    Chunk& data = chunks_[chunk];
    for (std::uint32_t node = 0; node < data.slabs.size(); ++node) {
      if (data.slabs[node] == SlabPool::kNone) continue;
      if (!is_filling(node, data.slabs[node])) give_slab(data.slabs[node]);
      data.slabs[node] = SlabPool::kNone;
    }
  }
  // The same for all chunks of an op.
  // Most ops are small and have no chunk: the table is read only as far as there can be any.
  template <typename IsFilling>
  void release_all(collective::OpId op, IsFilling is_filling) {
    std::uint32_t reserved = reserved_;
    for (collective::ChunkId chunk = 0; reserved > 0 && chunk < chunks_.size(); ++chunk) {
      if (chunks_[chunk].op == collective::kNoSlot) continue;
      --reserved;
      if (chunks_[chunk].op == op) release(chunk, is_filling);
    }
  }

 private:
  enum class Sum : std::uint8_t { promised, begun, lent };
  struct Chunk {
    collective::OpId op = collective::kNoSlot;
    Sum sum = Sum::promised;
    std::uint32_t accumulator = SlabPool::kNone;
    std::vector<std::uint32_t> slabs;  // by node
    std::vector<std::uint32_t> bytes;  // of the block in it
  };

  void release_sum(collective::ChunkId chunk) noexcept;

  std::uint32_t self_;
  FrameMemory* memory_ = nullptr;
  LaneJob* job_ = nullptr;
  std::vector<Chunk> chunks_;
  std::uint32_t reserved_ = 0;  // chunks that have an op
};

}  // namespace tern::daemon
