#include "collective/legs.h"

#include <algorithm>

#include "base/check.h"
#include "collective/op_sets.h"

namespace tern::collective {

Legs::Legs(const GroupShape& shape, std::size_t op_slots)
    : self_(shape.node),
      nodes_(shape.nodes()),
      window_(shape.contribution_window != 0 ? shape.contribution_window
                                             : contribution_window(shape.chunk_bytes, nodes_)),
      peers_(op_slots, nodes_, shape.max_ops_in_flight),
      own_(op_slots),
      parked_(op_slots),
      chunks_(shape.active_chunks),
      free_(shape.active_chunks) {
  sent_on_.reserve(shape.active_chunks);
  for (std::uint32_t i = 0; i < shape.active_chunks; ++i) free_[i] = shape.active_chunks - 1 - i;
}

void Legs::forget(OpId id) {
  own_[id] = Own{};
  parked_[id].clear();
  std::erase_if(sent_on_, [id](const SentOn& one) { return one.op == id; });
  peers_.clear(id);
}

void Legs::free_chunk(ChunkId chunk) {
  chunks_[chunk].op = kNoSlot;
  free_.push_back(chunk);
}

// Most ops are small and have none: the places are looked at only as far as there can be any.
void Legs::free_chunks(OpId id) {
  std::size_t taken = chunks_.size() - free_.size();
  for (ChunkId chunk = 0; taken > 0 && chunk < chunks_.size(); ++chunk) {
    if (chunks_[chunk].op == kNoSlot) continue;
    --taken;
    if (chunks_[chunk].op == id) free_chunk(chunk);
  }
}

ChunkId Legs::slot(OpId id, std::uint32_t index) const noexcept {
  for (ChunkId chunk = 0; chunk < chunks_.size(); ++chunk) {
    if (chunks_[chunk].op == id && chunks_[chunk].index == index) return chunk;
  }
  return kNoSlot;
}

// ---- Frames -------------------------------------------------------------------------------------

bool Legs::take_grant(OpId id, const Op& op, const Grant& grant) {
  Peer& peer = peers_.write(id, grant.node);
  if (grant.count == 0 || grant.count > op.chunks.owned(grant.node) - peer.granted) return false;
  if (op.chunks.chunk(grant.node, peer.granted) != grant.chunk) return false;
  peer.granted += grant.count;
  return true;
}

ChunkId Legs::expected_by(OpId id, const Op& op, std::uint32_t node, std::uint32_t number) const {
  const std::uint32_t index = peers_.read(id, node).contributed;
  if (index >= own_[id].granted || op.chunks.chunk(self_, index) != number) return kNoSlot;
  return slot(id, index);
}

void Legs::contributed(ChunkId chunk, std::uint32_t node) {
  chunks_[chunk].waiting |= bit(node);
  ++peers_.write(chunks_[chunk].op, node).contributed;
}

bool Legs::expects_result(OpId id, const Op& op, std::uint32_t node, std::uint32_t number) const {
  if (peers_.read(id, node).results >= op.chunks.sent(node, self_)) return false;
  return op.chunks.has(node, number) && op.chunks.sends(node, self_, number);
}

// ---- Actions ------------------------------------------------------------------------------------

Action Legs::next(OpId id, const Op& op, const Means& means) {
  const Room& room = means.room;
  if (op.chunks.is_sent_on() && self_ != op.root_node) {
    return room.results > 0 ? next_sent_on(id) : Action{};
  }
  Own& own = own_[id];
  const std::uint32_t owned = op.chunks.owned(self_);
  if (!op.plan->reduces()) {
    const Action scan = next_scan(id, op, means.inputs);
    if (scan.kind != ActionKind::none || !is_scanned(id, op)) return scan;
    if (own.published >= owned || room.results == 0) return {};
    if (!means.inputs.has(id, op.chunks.chunk(self_, own.published))) return {};
    return {.kind = ActionKind::publish, .op = id, .index = own.published++};
  }
  // Before any result and contribution: a grant that follows one on its link would keep the others
  // waiting.
  Action action = next_grant(id, op, room);
  if (action.kind == ActionKind::none) action = next_scan(id, op, means.inputs);
  if (action.kind == ActionKind::none) action = next_of_chunks(id, op, means);
  if (action.kind == ActionKind::none && room.contributions > 0 && is_scanned(id, op)) {
    action = next_contribution(id, op, means.inputs);
  }
  if (action.kind != ActionKind::none) return action;
  if (!parked_[id].empty() && own.finished + own.parked == owned && room.results > 0) {
    action = {.kind = ActionKind::finish_parked, .op = id, .index = parked_[id].back()};
    parked_[id].pop_back();
  }
  return action;
}

Action Legs::next_sent_on(OpId id) {
  const auto first = std::find_if(sent_on_.begin(), sent_on_.end(),
                                  [id](const SentOn& one) { return one.op == id; });
  if (first == sent_on_.end()) return {};
  const Action action{.kind = ActionKind::send_on, .op = id, .index = first->index};
  sent_on_.erase(first);
  return action;
}

Action Legs::next_of_chunks(OpId id, const Op& op, const Means& means) {
  const Own& own = own_[id];
  std::uint32_t unseen = own.granted - own.finished - own.parked;
  for (ChunkId chunk = 0; unseen > 0 && chunk < chunks_.size(); ++chunk) {
    Chunk& here = chunks_[chunk];
    if (here.op != id) continue;
    --unseen;
    if (here.busy) continue;
    Action action{.op = id, .index = here.index, .chunk = chunk};
    if (nodes_ == 1 && here.added == 0) {
      action.kind = ActionKind::begin;
    } else if (here.added == nodes_) {
      if (means.room.results == 0) continue;
      action.kind = ActionKind::finish;
    } else {
      // The fixed order: the owner, then the nodes after it. The owner's own waits for the next
      // one's, so that the two are added in one pass. No division: most chunks go no further.
      const std::uint32_t node = self_ + std::max(here.added, 1u);
      action.node = node < nodes_ ? node : node - nodes_;
      if ((here.waiting & bit(action.node)) == 0) continue;
      action.kind = here.added == 0 ? ActionKind::begin_add : ActionKind::add;
    }
    if (here.added == 0 && !means.inputs.has(id, op.chunks.chunk(self_, here.index))) continue;
    here.busy = true;
    return action;
  }
  return {};
}

Action Legs::next_grant(OpId id, const Op& op, const Room& room) {
  Own& own = own_[id];
  const std::uint32_t owned = op.chunks.owned(self_);
  if (own.granted >= owned || own.granting) return {};
  std::uint32_t count =
      std::min({owned - own.granted, room.accumulators, static_cast<std::uint32_t>(free_.size())});
  // Contributions that have come already need no room, and no grant.
  const std::uint64_t here =
      op.announces_chunks() ? low_bits(nodes_) & ~bit(self_) : std::uint64_t{0};
  if (nodes_ > 1 && here == 0) count = std::min(count, room.receive_slabs / (nodes_ - 1));
  if (count == 0) return {};
  const Action action{.kind = ActionKind::grant, .op = id, .index = own.granted, .count = count};
  for (std::uint32_t i = 0; i < count; ++i) {
    const ChunkId chunk = free_.back();
    free_.pop_back();
    chunks_[chunk] = Chunk{.op = id, .index = own.granted++, .waiting = here, .busy = true};
  }
  own.granting = true;
  return action;
}

// Of what this node sends.
Action Legs::next_scan(OpId id, const Op& op, const InputGate& inputs) {
  Scan& scan = own_[id].scan;
  if (is_scanned(id, op) || scan.busy) return {};
  for (; scan.node < nodes_; ++scan.node, scan.index = 0) {
    if ((scan.node == self_) == op.plan->reduces()) continue;
    if (scan.index >= op.chunks.owned(scan.node)) continue;
    if (!inputs.has(id, op.chunks.chunk(scan.node, scan.index))) return {};
    scan.busy = true;
    return {.kind = ActionKind::scan, .op = id, .node = scan.node, .index = scan.index++};
  }
  return {};
}

// Chunk by chunk round the owners, each node from the one before it: so everybody receives from one
// at a time, and first from whom it adds first. Raw ones are paced by the results, or the
// network's queues would put them in another order; parked sums, and sums that not all get, have no
// results to wait for.
Action Legs::next_contribution(OpId id, const Op& op, const InputGate& inputs) {
  const bool paced = op.contribution == Contribution::elements && !op.plan->hides_sums() &&
                     (op.announced_first.flags & wire::kAnnounceOneLane) == 0;
  const std::span<const Peer> peers = peers_.read(id);
  if (peers.empty()) return {};  // nobody has granted anything
  std::uint32_t best = nodes_;
  for (std::uint32_t step = 1; step < nodes_; ++step) {
    const std::uint32_t node = (self_ + nodes_ - step) % nodes_;
    const Peer& peer = peers[node];
    if (peer.sent >= peer.granted || peer.sending) continue;
    if (paced && peer.sent - peer.results >= window_) continue;
    if (!inputs.has(id, op.chunks.chunk(node, peer.sent))) continue;
    if (best == nodes_ || peer.sent < peers[best].sent) best = node;
  }
  if (best == nodes_) return {};
  Peer& peer = peers_.write(id, best);
  peer.sending = true;
  return {.kind = ActionKind::contribute, .op = id, .node = best, .index = peer.sent++};
}

std::uint32_t Legs::done(const Action& action, const Op& op) {
  Own& own = own_[action.op];
  switch (action.kind) {
    case ActionKind::grant:
      own.granting = false;
      for (Chunk& chunk : chunks_) {
        if (chunk.op != action.op || chunk.index < action.index) continue;
        if (chunk.index - action.index < action.count) chunk.busy = false;
      }
      return 0;
    case ActionKind::scan:
      own.scan.busy = false;
      return 0;
    case ActionKind::contribute:
      peers_.write(action.op, action.node).sending = false;
      return op.plan->hides_sums() ? 1 : 0;
    case ActionKind::begin:
    case ActionKind::begin_add:
    case ActionKind::add: {
      Chunk& chunk = chunks_[action.chunk];
      chunk.busy = false;
      if (op.failed()) return 0;
      chunk.added = action.kind == ActionKind::begin_add ? 2 : chunk.added + 1;
      if (action.kind != ActionKind::begin) chunk.waiting &= ~bit(action.node);
      return 0;
    }
    case ActionKind::finish:
      ++own.finished;
      free_chunk(action.chunk);
      return 1;
    case ActionKind::finish_parked:
      --own.parked;
      ++own.finished;
      return 1;
    case ActionKind::publish:
    case ActionKind::send_on:
      return 1;
    // Of the whole op.
    case ActionKind::none:
    case ActionKind::announce:
    case ActionKind::reduce_eager:
    case ActionKind::verify:
    case ActionKind::fail_remote:
    case ActionKind::tell_submitted:
    case ActionKind::complete:
      return 0;
  }
  return 0;
}

void Legs::delivered(OpId id, const Op& op, std::uint32_t number) {
  if (!op.chunks.is_sent_on()) return;
  const std::uint32_t index = op.chunks.index(self_, number);
  if (index != kNoSlot) sent_on_.push_back({id, index});
}

void Legs::park(const Action& finish) {
  TERN_CHECK(chunks_[finish.chunk].op == finish.op);
  parked_[finish.op].push_back(finish.index);
  ++own_[finish.op].parked;
  free_chunk(finish.chunk);
}

}  // namespace tern::collective
