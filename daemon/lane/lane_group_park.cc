// One scale for a whole tensor: nothing can be encoded before the largest value is known. What this
// node contributes is scanned; the sums that it owns are parked until all of them are there.

#include <algorithm>
#include <limits>

#include "daemon/lane/lane.h"
#include "daemon/lane/lane_group.h"

namespace tern::daemon {

using collective::Action;
using collective::ChunkId;
using collective::OpId;

// One maximum over all this node sends of the op.
void LaneGroup::scan_reduce_leg(OpId op) {
  OpData& data = data_[op];
  data.scanned = true;
  const auto& chunks = ops_.op(op).chunks;
  for (std::uint32_t node = 0; node < nodes_; ++node) {
    if (node == self_) continue;
    for (std::uint32_t i = 0; i < chunks.owned(node); ++i) {
      const Part where = part(op, chunks.chunk(node, i));
      const float* residual = data.tensor->codec.sender(where.begin);
      const auto scan = codec::scan_max(local_f32(op, where), residual, data.state_scale);
      if (!scan.nonfinite) data.reduce_max = std::max(data.reduce_max, scan.max);
    }
  }
}

// The sum waits as residual + sum in the residual's place. False: not finite, it goes raw at once.
bool LaneGroup::park_sum(ChunkId chunk) {
  const OpId op = ops_.op_of(chunk);
  OpData& data = data_[op];
  const Part where = part(op, ops_.chunk_number(chunk));
  const auto* sum = static_cast<const float*>(
      static_cast<const void*>(lane_->accumulators().slab(chunks_[chunk].accumulator).data()));
  float* residual = data.tensor->codec.sender(where.begin);
  const auto scan = codec::scan_max({sum, where.elements}, residual, data.state_scale);
  // Above this the scale, up to twice the maximum, would not be finite.
  if (scan.nonfinite || scan.max > std::numeric_limits<float>::max() / 2) return false;
  data.result_max = std::max(data.result_max, scan.max);
  for (std::uint32_t i = 0; i < where.elements; ++i) {
    residual[i] = sum[i] + data.state_scale * residual[i];
  }
  return true;
}

void LaneGroup::finish_parked(const Action& action) {
  const OpId op = action.op;
  const std::uint32_t number = ops_.op(op).chunks.chunk(self_, action.index);
  const Part where = part(op, number);
  auto* zeros = static_cast<float*>(static_cast<void*>(lane_->scratch(0).data()));
  std::fill(zeros, zeros + where.elements, 0.0f);
  TERN_CHECK(finish_lossy(op, number, data_[op].recipe, {zeros, where.elements},
                          1.0f));  // finite, as park_sum saw
}

// What a failed op had parked is neither sum nor residual any more.
void LaneGroup::forget_parked(OpId op) {
  const auto parked = ops_.parked_indices(op);
  for (const std::uint32_t index : parked) {
    const Part where = part(op, ops_.op(op).chunks.chunk(self_, index));
    std::fill_n(data_[op].tensor->codec.sender(where.begin), where.elements, 0.0f);
  }
  if (!parked.empty()) count_resets(*data_[op].tensor, parked.size());
}

}  // namespace tern::daemon
