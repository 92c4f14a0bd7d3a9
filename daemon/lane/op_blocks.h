#pragma once

// What the blocks of one group's ops are about: which elements, of what type, in whose codec state;
// and what they have cost so far.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "collective/group_ops.h"
#include "daemon/lane/block_request.h"
#include "daemon/lane/codec_room.h"
#include "daemon/lane/lane_ops.h"
#include "daemon/lane/lane_settings.h"
#include "daemon/lane/trace_ring.h"
#include "tuner/error_guard.h"

namespace tern::daemon {

// The elements of one chunk.
struct ChunkPart {
  std::uint64_t begin = 0;
  std::uint32_t elements = 0;

  plan::Range range() const noexcept { return {begin, elements}; }
};

// Of one op.
struct BlockStats {
  std::uint64_t first_encode_ns = 0;
  std::uint64_t encode_ns = 0, decode_ns = 0;
  std::uint64_t encoded_bytes = 0;  // of elements
  tuner::ErrorSample error;         // of contributions with slots as their client says
  // scale=tensor: the largest value of all that this node contributes, once it is known, and of all
  // sums that it owns.
  std::optional<float> contributions_max;
  float results_max = 0.0f;
};

class OpBlocks {
 public:
  struct Identity {
    std::uint64_t group = 0;  // this daemon's number, for traces
    std::uint64_t seed = 0;   // of all random draws
    std::uint32_t size = 1;   // ranks of the group
  };

  // Everything given outlives this.
  OpBlocks(const collective::GroupOps& ops, const LaneOps& lane_ops, const Identity& identity)
      : ops_(ops), lane_ops_(lane_ops), identity_(identity), stats_(ops.table().slots()) {}
  // Before the first request.
  void attach(CodecRoom& room, TraceRing& trace, LaneCounters& counters, const Clock& clock);

  const Identity& identity() const noexcept { return identity_; }
  const collective::GroupOps& ops() const noexcept { return ops_; }
  std::uint32_t self() const noexcept { return ops_.shape().node; }
  const collective::Op& op(collective::OpId op) const noexcept { return ops_.op(op); }
  DType dtype(collective::OpId op) const noexcept {
    return static_cast<DType>(ops_.op(op).announced_first.dtype);
  }
  Reduction reduction(collective::OpId op) const noexcept {
    return static_cast<Reduction>(ops_.op(op).announced_first.reduction);
  }
  std::uint64_t sequence(collective::OpId op) const noexcept { return ops_.op(op).key.sequence; }
  // What an op that fits in its announcement has: one part.
  ChunkPart whole(collective::OpId op) const noexcept {
    return {0, static_cast<std::uint32_t>(ops_.op(op).announced_first.count)};
  }
  std::uint32_t elements(collective::OpId op, std::uint32_t number) const noexcept {
    return ops_.op(op).is_eager() ? whole(op).elements : ops_.op(op).chunks.size(number);
  }
  // Where they lie in the inputs of ranks that have them, and in the outputs of those that get them.
  ChunkPart part(collective::OpId op, std::uint32_t number) const noexcept;
  ChunkPart result_part(collective::OpId op, std::uint32_t number) const noexcept;
  std::size_t bytes(collective::OpId op, const ChunkPart& part) const noexcept {
    return part.elements * dtype_bytes(dtype(op));
  }

  // Null: the op's ranks have elements. See LaneOp.
  const shm::BlockSlots* slots(collective::OpId op) const noexcept { return lane_ops_[op].slots(); }
  const OpEncoding& encoding(collective::OpId op) const noexcept { return lane_ops_[op].encoding; }
  std::span<const OpRank> ranks(collective::OpId op) const noexcept { return lane_ops_.ranks(op); }
  TensorState* tensor(collective::OpId op) const noexcept { return lane_ops_[op].tensor; }
  TensorLane& tensor_lane(collective::OpId op) const noexcept {
    return lane_ops_[op].tensor->lanes[ops_.shape().lane];
  }

  BlockStats& stats(collective::OpId op) noexcept { return stats_[op]; }
  // The client has encoded them, and says what they leave out.
  void count_contributions(collective::OpId op, const tuner::LegEnergies& energies) noexcept {
    stats_[op].error.contributions = energies;
  }
  void forget(collective::OpId op) noexcept { stats_[op] = BlockStats{}; }
  void add_encode(collective::OpId op, std::uint64_t ns) noexcept {
    stats_[op].encode_ns += ns;
    room_->spent.add(ns);
  }
  void add_decode(collective::OpId op, std::uint64_t ns) noexcept {
    stats_[op].decode_ns += ns;
    room_->spent.add(ns);
  }
  LaneCounters& counters() noexcept { return *counters_; }

  codec::Workspace& workspace() noexcept { return room_->workspace; }
  std::span<std::byte> scratch(std::uint32_t index) noexcept { return room_->scratch.slab(index); }
  // One chunk in f32.
  std::span<float> scratch_floats(std::uint32_t index, std::uint32_t elements) noexcept;

  std::uint64_t now_ns() const noexcept { return clock_->now_ns(); }
  struct Span {
    std::uint64_t begin_ns, end_ns;
  };
  // Only while tracing is on. `bytes`: of the block.
  void trace(TraceKind kind, const BlockRequest& request, const wire::BlockHeader& header,
             const Span& time);

 private:
  const collective::GroupOps& ops_;
  const LaneOps& lane_ops_;
  Identity identity_;
  CodecRoom* room_ = nullptr;
  TraceRing* trace_ = nullptr;
  LaneCounters* counters_ = nullptr;
  const Clock* clock_ = nullptr;
  std::vector<BlockStats> stats_;  // by op slot
};

// Who uses codec state by the op's blocks.
inline MemoryUse::User user_of(const collective::Op& op) noexcept {
  return {op.plan->number, op.plan->has_one_leg(), op.announced_first.counts_crc,
          op.plan->has_root ? op.announced_first.root : MemoryUse::kNoRoot};
}

// Arena memory and slabs are at least element-aligned (checked at submission).
inline float* as_floats(std::byte* bytes) noexcept {
  return static_cast<float*>(static_cast<void*>(bytes));
}
inline const float* as_floats(const std::byte* bytes) noexcept {
  return static_cast<const float*>(static_cast<const void*>(bytes));
}

}  // namespace tern::daemon
