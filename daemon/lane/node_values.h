#pragma once

// The values of this node's ranks: what they contribute to an op, and where its result goes. Inputs
// are read, and outputs written, in host memory. Of an op with slots a chunk of this node's own is
// plain elements in its slot, and so is a result that is delivered here as elements.

#include <cstddef>
#include <span>

#include "daemon/lane/op_blocks.h"

namespace tern::daemon {

class NodeValues {
 public:
  explicit NodeValues(OpBlocks& blocks) : blocks_(blocks) {}

  // ---- Inputs ----
  // One rank whose bytes are the node's contribution as they are.
  bool is_plain(collective::OpId op) const noexcept;
  // REQUIRES: is_plain(op).
  const std::byte* plain(collective::OpId op, const ChunkPart& part) const noexcept;
  // The sum of the ranks' values, in the accumulator's type.
  void sum(collective::OpId op, const ChunkPart& part, std::byte* out) const;
  // The same in the tensor's type: one rounding after the sum. Uses scratch 0.
  void write(collective::OpId op, const ChunkPart& part, std::byte* out) const;
  // The same in f32, in the input itself or in scratch 0.
  std::span<const float> floats(collective::OpId op, const ChunkPart& part) const;
  // Of an op that moves, the elements of the rank whose they are. REQUIRES: it is on this node.
  const std::byte* moved_input(collective::OpId op, const ChunkPart& part) const noexcept;

  // The same in f32, in the input itself or in scratch 0.
  std::span<const float> moved_floats(collective::OpId op, const ChunkPart& part) const;

  // The block that the rank's client has made of a chunk. REQUIRES: the op has slots.
  std::span<const std::byte> block(collective::OpId op, const ChunkPart& part) const noexcept;

  // What this node has for another of an eager op, as it lies or one piece after the other in
  // scratch 0. `contribution`: all that it contributes to a reduction.
  std::span<const std::byte> eager_values(collective::OpId op, std::uint32_t node,
                                          std::span<const std::byte> contribution) const;

  // ---- Outputs ----
  // Of the first rank that receives the part; the others are copied from it. REQUIRES: there is one.
  std::byte* output(collective::OpId op, const ChunkPart& part) const noexcept;
  // To every rank that receives the part and whose output is not `elements` itself.
  void deliver(collective::OpId op, const ChunkPart& part, const std::byte* elements) const;
  // The result of a chunk as it came. False: its slot has no room for it.
  // REQUIRES: the op has slots.
  bool deliver_block(collective::OpId op, const ChunkPart& part,
                     std::span<const std::byte> block) const;
  void deliver_floats(collective::OpId op, const ChunkPart& part, const float* values) const;
  void copy_to_other_ranks(collective::OpId op, const ChunkPart& part) const;

 private:
  // Of a rank's memory.
  std::byte* input_at(collective::OpId op, const OpRank& rank, std::uint64_t begin) const noexcept;
  std::byte* output_at(collective::OpId op, const OpRank& rank,
                       const ChunkPart& part) const noexcept;

  OpBlocks& blocks_;
};

}  // namespace tern::daemon
