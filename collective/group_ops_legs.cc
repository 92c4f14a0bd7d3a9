// The two legs of an op, and the choice of the next action.

#include <algorithm>

#include "base/check.h"
#include "collective/group_ops.h"
#include "collective/op_sets.h"

namespace tern::collective {

// ---- Data legs ----------------------------------------------------------------------------------

bool GroupOps::on_grant(std::uint32_t node, const OpKey& key, std::uint32_t chunk,
                        std::uint32_t count) {
  const OpId id = find(key);
  if (id == kNoOp) return superseded(key) || ended_;
  const Op& op = ops_[id];
  if (op.failed || op.completing) return true;
  // An owner grants after all have announced, and this node is one of them.
  if (!op.described || (op.announced & bit(shape_.node)) == 0 ||
      !is_kind(op.said, shm::OpKind::all_reduce)) {
    return false;
  }
  // It knows of a node that wants the two legs, whose announcement has not come here yet.
  decline_eager(id);
  if (op.eager) return false;
  Progress& with = progress(id, node);
  const std::uint32_t owned = op.chunks.owned(node);
  if (count == 0 || count > owned - with.granted) return false;
  if (op.chunks.chunk(node, with.granted) != chunk) return false;
  with.granted += count;
  return true;
}

bool GroupOps::expect_contribution(std::uint32_t node, const OpKey& key, std::uint32_t chunk_number,
                                   ChunkId& chunk) const {
  chunk = kNoOp;
  const OpId id = find(key);
  if (id == kNoOp) return superseded(key) || ended_;
  const Op& op = ops_[id];
  if (op.failed) return true;
  const Progress& with = progress(id, node);
  if (!op.started || op.eager || with.contributed >= op.granted_out) return false;
  if (op.chunks.chunk(shape_.node, with.contributed) != chunk_number) return false;
  chunk = chunk_slot(id, with.contributed);
  return chunk != kNoOp;
}

void GroupOps::on_contribution(std::uint32_t node, ChunkId chunk) {
  chunks_[chunk].arrived |= bit(node);
  ++progress(chunks_[chunk].op, node).contributed;
}

bool GroupOps::expect_result(std::uint32_t node, const OpKey& key, std::uint32_t chunk_number,
                             OpId& id) const {
  id = find(key);
  if (id == kNoOp) return superseded(key) || ended_;
  const Op& op = ops_[id];
  if (op.failed) {
    id = kNoOp;
    return true;
  }
  if (!op.described || op.eager || (op.announced & bit(shape_.node)) == 0) return false;
  return progress(id, node).results < op.chunks.owned(node) &&
         op.chunks.index(node, chunk_number) != ChunkMap::kNone;
}

void GroupOps::on_result(std::uint32_t node, OpId id) {
  ++progress(id, node).results;
  TERN_CHECK(ops_[id].chunks_left > 0);
  --ops_[id].chunks_left;
  check_delivered(id);
}

void GroupOps::begun(ChunkId chunk) { chunks_[chunk].position = 1; }

void GroupOps::added(ChunkId chunk, std::uint32_t node) {
  chunks_[chunk].arrived &= ~bit(node);
  ++chunks_[chunk].position;
}

void GroupOps::finished(ChunkId chunk) {
  const OpId id = chunks_[chunk].op;
  chunks_[chunk].op = kNoOp;
  free_chunks_.push_back(chunk);
  ++ops_[id].finished;
  --ops_[id].chunks_left;
  check_delivered(id);
}

void GroupOps::parked(ChunkId chunk) {
  const OpId id = chunks_[chunk].op;
  parked_[id].push_back(chunks_[chunk].index);
  ++ops_[id].parked;
  chunks_[chunk].op = kNoOp;
  free_chunks_.push_back(chunk);
}

void GroupOps::finished_parked(OpId id) {
  --ops_[id].parked;
  ++ops_[id].finished;
  --ops_[id].chunks_left;
  check_delivered(id);
}

void GroupOps::published(OpId id) {
  --ops_[id].chunks_left;
  check_delivered(id);
}

void GroupOps::eager_reduced(OpId id) { finish_op(id); }

void GroupOps::check_delivered(OpId id) {
  if (ops_[id].started && !ops_[id].failed && ops_[id].chunks_left == 0) finish_op(id);
}

void GroupOps::finish_op(OpId id) {
  Op& op = ops_[id];
  running_.erase(std::remove(running_.begin(), running_.end(), id), running_.end());
  const bool compare =
      shape_.verify && !is_kind(op.said, shm::OpKind::barrier) && nodes_ * local_ranks_ > 1;
  if (!compare) {
    to_complete_.push_back(id);
    return;
  }
  op.verifying = true;
  running_.push_back(id);  // its only action left is verify
}

void GroupOps::verified_here(OpId id) {
  ops_[id].verified |= bit(shape_.node);
  if (ops_[id].verified == all_nodes()) to_complete_.push_back(id);
}

bool GroupOps::on_verify(std::uint32_t node, const OpKey& key, OpId& id) {
  id = find(key);
  if (id == kNoOp) return superseded(key) || ended_;
  Op& op = ops_[id];
  if (op.failed) {
    id = kNoOp;
    return true;
  }
  if (!op.described || (op.verified & bit(node)) != 0 || !shape_.verify) return false;
  op.verified |= bit(node);
  if (op.verified == all_nodes()) to_complete_.push_back(id);
  return true;
}

// ---- Actions ------------------------------------------------------------------------------------

void GroupOps::free_chunks(OpId id) {
  for (ChunkId chunk = 0; chunk < chunks_.size(); ++chunk) {
    if (chunks_[chunk].op != id) continue;
    chunks_[chunk].op = kNoOp;
    free_chunks_.push_back(chunk);
  }
}

Action GroupOps::next(const Room& room) {
  Action action;
  if (!to_fail_remote_.empty()) {
    action.kind = ActionKind::fail_remote;
    action.op = to_fail_remote_.front();
    to_fail_remote_.erase(to_fail_remote_.begin());
    return action;
  }
  if (!to_complete_.empty()) {
    const OpId id = to_complete_.front();
    to_complete_.erase(to_complete_.begin());
    running_.erase(std::remove(running_.begin(), running_.end(), id), running_.end());
    free_chunks(id);
    ops_[id].completing = true;
    action.kind = ActionKind::complete;
    action.op = id;
    return action;
  }
  if (!to_tell_.empty()) {
    const OpId id = to_tell_.back();
    to_tell_.pop_back();
    ops_[id].told = ops_[id].submitted;
    action.kind = ActionKind::tell_submitted;
    action.op = id;
    return action;
  }
  if (!to_announce_.empty()) {
    const OpId id = to_announce_.front();
    to_announce_.erase(to_announce_.begin());
    ops_[id].announced |= bit(shape_.node);
    if (ops_[id].announced == all_nodes()) start(id);
    action.kind = ActionKind::announce;
    action.op = id;
    return action;
  }
  for (const OpId id : running_) {
    action = running_action(id, room);
    if (action.kind != ActionKind::none) return action;
  }
  return action;
}

Action GroupOps::running_action(OpId id, const Room& room) {
  Op& op = ops_[id];
  Action action;
  action.op = id;
  if (op.verifying) {
    if ((op.verified & bit(shape_.node)) == 0) action.kind = ActionKind::verify;
    return action;
  }
  if (op.eager) {
    action.kind = ActionKind::reduce_eager;
    return action;
  }
  const std::uint32_t self = shape_.node;
  if (is_kind(op.said, shm::OpKind::broadcast)) {
    if (op.published < op.chunks.owned(self) && room.results > 0) {
      action.kind = ActionKind::publish;
      action.index = op.published++;
    }
    return action;
  }
  for (ChunkId chunk = 0; op.finished < op.granted_out && chunk < chunks_.size(); ++chunk) {
    const Chunk& slot = chunks_[chunk];
    if (slot.op != id) continue;
    action.chunk = chunk;
    action.index = slot.index;
    if (nodes_ == 1 && slot.position == 0) {
      action.kind = ActionKind::begin;
      return action;
    }
    if (slot.position == nodes_) {
      if (room.results == 0) continue;
      action.kind = ActionKind::finish;
      return action;
    }
    // The fixed order: the owner, then the nodes after it. The owner's own waits for the next
    // one's, so that the two are added in one pass.
    action.node = (self + std::max(slot.position, 1u)) % nodes_;
    if ((slot.arrived & bit(action.node)) != 0) {
      action.kind = slot.position == 0 ? ActionKind::begin_add : ActionKind::add;
      return action;
    }
  }
  const std::uint32_t owned = op.chunks.owned(self);
  // Before any contribution: a grant that follows one on its link would keep the others waiting.
  if (op.granted_out < owned) {
    std::uint32_t count = std::min({owned - op.granted_out, room.accumulators,
                                    static_cast<std::uint32_t>(free_chunks_.size())});
    if (nodes_ > 1) count = std::min(count, room.receive_slabs / (nodes_ - 1));
    if (count > 0) {
      action.kind = ActionKind::grant;
      action.index = op.granted_out;
      action.count = count;
      for (std::uint32_t i = 0; i < count; ++i) {
        const ChunkId chunk = free_chunks_.back();
        free_chunks_.pop_back();
        chunks_[chunk] = Chunk{id, op.granted_out++, 0, 0};
      }
      return action;
    }
  }
  if (room.contributions > 0) {
    // Chunk by chunk round the owners, each node from the one after it: so everybody receives from
    // one at a time, and first chunks are complete early. Raw ones are paced by the results, or the
    // network's queues would put them in another order; parked sums have no results to wait for.
    const bool paced = !op.compressed && (op.said.flags & wire::kAnnounceOneLane) == 0;
    std::uint32_t best = nodes_;
    for (std::uint32_t step = 1; step < nodes_; ++step) {
      const std::uint32_t node = (self + step) % nodes_;
      const Progress& with = progress(id, node);
      if (with.sent >= with.granted) continue;
      if (paced && with.sent - with.results >= window_) continue;
      if (best == nodes_ || with.sent < progress(id, best).sent) best = node;
    }
    if (best != nodes_) {
      action.kind = ActionKind::contribute;
      action.node = best;
      action.index = progress(id, best).sent++;
      return action;
    }
  }
  if (!parked_[id].empty() && op.finished + op.parked == owned && room.results > 0) {
    action.kind = ActionKind::finish_parked;
    action.index = parked_[id].back();
    parked_[id].pop_back();
    return action;
  }
  return action;
}

}  // namespace tern::collective
