#include "daemon/lane/chunk_table.h"

namespace tern::daemon {

using collective::ChunkId;
using collective::OpId;

ChunkTable::ChunkTable(const collective::GroupShape& shape)
    : self_(shape.node), chunks_(shape.active_chunks) {
  for (Chunk& chunk : chunks_) {
    chunk.slabs.assign(shape.nodes(), SlabPool::kNone);
    chunk.bytes.assign(shape.nodes(), 0);
  }
}

void ChunkTable::reserve_sum(ChunkId chunk, OpId op) {
  Chunk& data = chunks_[chunk];
  data.op = op;
  ++reserved_;
  data.sum = Sum::promised;
  memory_->accumulators().promise();
  ++job_->held.accumulators;
}

void ChunkTable::reserve(ChunkId chunk, OpId op) {
  reserve_sum(chunk, op);
  Chunk& data = chunks_[chunk];
  for (std::uint32_t node = 0; node < data.slabs.size(); ++node) {
    data.slabs[node] = node == self_ ? SlabPool::kNone : memory_->receive_slabs().take();
  }
  job_->held.receive_slabs += static_cast<std::uint32_t>(data.slabs.size()) - 1;
}

Operand ChunkTable::begin_sum(ChunkId chunk) {
  Chunk& data = chunks_[chunk];
  data.sum = Sum::begun;
  data.accumulator = memory_->accumulators().take_promised();
  return sum(chunk);
}

Operand ChunkTable::sum(ChunkId chunk) const noexcept {
  return memory_->accumulators().operand(chunks_[chunk].accumulator);
}

std::uint32_t ChunkTable::lend_sum(ChunkId chunk) noexcept {
  chunks_[chunk].sum = Sum::lent;
  return chunks_[chunk].accumulator;
}

Operand ChunkTable::contribution(ChunkId chunk, std::uint32_t node) const noexcept {
  const Chunk& data = chunks_[chunk];
  return memory_->receive_slabs().operand(data.slabs[node]).slice(0, data.bytes[node]);
}

void ChunkTable::release_contribution(ChunkId chunk, std::uint32_t node) noexcept {
  give_slab(chunks_[chunk].slabs[node]);
  chunks_[chunk].slabs[node] = SlabPool::kNone;
}

void ChunkTable::give_slab(std::uint32_t slab) noexcept {
  memory_->receive_slabs().give(slab);
  --job_->held.receive_slabs;
}

void ChunkTable::release_sum(ChunkId chunk) noexcept {
  Chunk& data = chunks_[chunk];
  data.op = collective::kNoSlot;
  --reserved_;
  if (data.sum == Sum::promised) memory_->accumulators().withdraw_promise();
  if (data.sum == Sum::begun) memory_->accumulators().give(data.accumulator);
  if (data.sum != Sum::lent) --job_->held.accumulators;
  data.accumulator = SlabPool::kNone;
}

}  // namespace tern::daemon
