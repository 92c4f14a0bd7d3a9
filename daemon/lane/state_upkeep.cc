#include "daemon/lane/state_upkeep.h"

#include <algorithm>
#include <utility>

#include "collective/share_chunks.h"
#include "plan/cut.h"
#include "plan/plans.h"

namespace tern::daemon {

using collective::OpId;

shm::Sharding StateUpkeep::sharding_of(const TensorState& tensor, const plan::Plan* plan,
                                       std::span<const std::uint64_t> share_begins) const {
  const collective::GroupShape& shape = ops_.shape();
  plan::Portions portions{.count = tensor.count, .dtype = tensor.dtype};
  if (plan != nullptr && plan->has_shares()) {
    portions.shares = shape.group_size();
    if (share_begins.empty()) portions.largest_share = tensor.count / portions.shares;
  }
  for (std::size_t i = 1; i < share_begins.size(); ++i) {
    portions.largest_share =
        std::max(portions.largest_share, share_begins[i] - share_begins[i - 1]);
  }
  const plan::Place place{.tensor = tensor.id,
                          .chunk_bytes = shape.chunk_bytes,
                          .version = shape.cut,
                          .nodes = shape.nodes(),
                          .lanes = shape.lanes,
                          .one_lane = tensor.declared.one_lane};
  return plan != nullptr ? plan::cut(*plan, portions, place) : plan::cut(portions, place);
}

template <typename Use>
void StateUpkeep::for_each_chunk(const TensorState& tensor, Use use) const {
  const auto sharding = sharding_of(tensor);
  const std::uint32_t lane = ops_.shape().lane;
  for (std::uint64_t i = 0; i < sharding.chunk_count; ++i) {
    if (sharding.lane(i) == lane) use(static_cast<std::uint32_t>(i));
  }
}

void StateUpkeep::save(OpId op) {
  of_op_[op].is_saved = true;
  lane_ops_[op].tensor->codec.save(ops_.op(op).key.sequence);
}

std::uint64_t StateUpkeep::lose(OpId op) {
  // An op that has no tensor yet may get one from a rank that comes later.
  if (std::exchange(of_op_[op].is_lost, lane_ops_[op].tensor != nullptr)) return 0;
  const std::size_t parked = ops_.parked_indices(op).size();
  if (parked > 0) {
    of_op_[op].has_parked = true;
    ++to_clear_;
  }
  // Nobody begins an op before this node has announced it.
  const bool may_have_begun = ops_.op(op).has_spoken(ops_.shape().node);
  const std::uint64_t resets = parked + (may_have_begun ? lose_streams(op) : 0);
  take_back(op);
  // The first rank that leaves ends ops, and the last one the epoch.
  if (ops_.op(op).status == Errc::group_left) mark_doubtful(op);
  return resets;
}

// Of an op that has not begun here what this node has announced counts as not sent. Another node
// may have begun all the same: then it has been delivered there, and is owed once more.
void StateUpkeep::take_back(OpId op) {
  const LaneOp& data = lane_ops_[op];
  if (!has_saved(op) || ops_.op(op).has_started()) return;
  if (!data.tensor->codec.restore(ops_.op(op).key.sequence)) return;
  if (data.encoding.tuning == nullptr) return;
  // At most one chunk for each node.
  const std::uint32_t chunks = ops_.op(op).announces_chunks() ? ops_.nodes() : 1;
  data.encoding.tuning->set_residuals_pending(chunks);
}

// What a failed op had parked is neither sum nor residual any more.
OpId StateUpkeep::clear_some(std::size_t bytes) {
  while (clearing_.op == collective::kNoSlot || !of_op_[clearing_.op].has_parked) {
    ++clearing_.op;  // kNoSlot is before the first
  }
  const OpId op = clearing_.op;
  const auto parked = ops_.parked_indices(op);
  const auto& chunks = ops_.op(op).chunks;
  for (std::size_t cleared = 0; cleared < bytes && clearing_.done < parked.size();
       ++clearing_.done) {
    const std::uint32_t number = chunks.chunk(ops_.shape().node, parked[clearing_.done]);
    std::fill_n(lane_ops_[op].tensor->codec.sender(chunks.begin(number)), chunks.size(number),
                0.0f);
    cleared += chunks.size(number) * sizeof(float);
  }
  if (clearing_.done < parked.size()) return collective::kNoSlot;
  of_op_[op].has_parked = false;
  --to_clear_;
  clearing_ = {};
  return op;
}

// A failed op may have moved one end of a stream and not the other, and it may have failed on this
// node alone. What we send begins anew. What we receive is refused until it does, which the next
// announcement asks of the others.
std::uint64_t StateUpkeep::lose_streams(OpId op) {
  TensorState* const tensor = lane_ops_[op].tensor;
  if (tensor == nullptr || !tensor->codec.has_streams()) return 0;
  restart_streams(*tensor);
  if (std::exchange(lane_of(*tensor).streams.received, false)) {
    for_each_chunk(*tensor, [tensor](std::uint32_t chunk) { tensor->codec.lose_received(chunk); });
  }
  lane_of(*tensor).streams.lost = true;
  return 1;
}

void StateUpkeep::mark_doubtful(OpId op) {
  const LaneOp& data = lane_ops_[op];
  if (data.tensor == nullptr || !data.encoding.lossy) return;
  // A client's block may have gone out with the announcement: what it leaves out the client has.
  const collective::Op& about = ops_.op(op);
  const bool announced = data.slots() != nullptr &&
                         (about.is_eager() || about.announces_chunks()) &&
                         about.has_spoken(ops_.shape().node);
  if (!about.has_started() && !has_saved(op) && !announced) return;
  data.tensor->doubtful.store(true, std::memory_order_relaxed);
}

void StateUpkeep::mark_all_doubtful() {
  for (OpId op = 0; op < ops_.table().slots(); ++op) {
    if (ops_.table().in_use(op)) mark_doubtful(op);
  }
}

void StateUpkeep::restart_streams(TensorState& tensor) {
  if (!std::exchange(lane_of(tensor).streams.sent, false)) return;
  for_each_chunk(tensor, [&tensor](std::uint32_t chunk) { tensor.codec.sender_step(chunk) = 0; });
}

bool StateUpkeep::take_lost(TensorState& tensor) noexcept {
  return std::exchange(lane_of(tensor).streams.lost, false);
}

// ---- Checkpoints

bool StateUpkeep::is_in_use(const TensorState& tensor) const {
  for (OpId op = 0; op < ops_.table().slots(); ++op) {
    const collective::Op& one = ops_.op(op);
    const bool is_done = (one.is_completing() && !is_clearing(op)) || one.is_remembered();
    if (ops_.table().in_use(op) && !is_done && lane_ops_[op].tensor == &tensor) return true;
  }
  return false;
}

void StateUpkeep::remember_counts(TensorState& tensor, std::span<const std::uint64_t> counts,
                                  std::uint32_t counts_crc) {
  TensorLane& lane = lane_of(tensor);
  // A client may choose counts of any checksum.
  if (lane.shares.counts_crc == counts_crc && lane.shares.begins.size() == counts.size() + 1)
    return;
  lane.shares.counts_crc = counts_crc;
  lane.shares.begins.assign(1, 0);
  lane.shares.begins.reserve(counts.size() + 1);
  for (const std::uint64_t count : counts) {
    lane.shares.begins.push_back(lane.shares.begins.back() + count);
  }
}

std::span<const std::uint64_t> StateUpkeep::share_begins_of(const StateMove& move) const {
  if (move.imports) return move.share_begins;
  const TensorLane& lane = lane_of(*move.tensor);
  const std::uint32_t crc = move.part.header().counts_crc;
  const bool are_of_part = crc != 0 && lane.shares.counts_crc == crc &&
                           lane.shares.begins.size() == ops_.shape().group_size() + 1;
  return are_of_part ? std::span<const std::uint64_t>(lane.shares.begins)
                     : std::span<const std::uint64_t>();
}

bool StateUpkeep::move_some(const StateMove& move, MoveProgress& progress,
                            event::StateMoved& outcome) {
  const auto fail = [&outcome](Errc code, const char* text) {
    outcome.code = code;
    outcome.text = Sentence(text);
    return false;
  };
  TensorState& tensor = *move.tensor;
  const std::uint64_t uses = lane_of(tensor).uses;
  const bool begins = progress.next_chunk == 0;
  if (begins) progress.uses = uses;
  if (is_in_use(tensor) || uses != progress.uses) {
    if (begins) {
      return fail(Errc::would_block, "operations on the tensor are in flight: wait for them first");
    }
    return fail(Errc::cancelled, "an operation on the tensor began while its state was moved");
  }
  const StatePartHeader& part = move.part.header();
  const auto share_begins = share_begins_of(move);
  if (part.counts_crc != 0 && share_begins.empty()) {
    // A lane that has seen no counts has had no chunk.
    if (lane_of(tensor).shares.counts_crc == 0) return false;
    return fail(Errc::state_mismatch,
                "the last operation on the tensor had other counts than its residual: submit one "
                "with these counts first");
  }
  const auto sharding = sharding_of(tensor, plan::find(part.kind), share_begins);
  if (begins && part.counts_crc != 0) begin_with_counts(move, share_begins, sharding);
  std::uint64_t& chunk = progress.next_chunk;
  while (chunk < sharding.chunk_count && sharding.lane(chunk) != ops_.shape().lane) ++chunk;
  if (chunk < sharding.chunk_count &&
      !move_chunk(move, sharding, static_cast<std::uint32_t>(chunk++))) {
    return fail(Errc::invalid_argument, "the state holds values that are not finite");
  }
  while (chunk < sharding.chunk_count && sharding.lane(chunk) != ops_.shape().lane) ++chunk;
  return chunk < sharding.chunk_count;
}

// The first lane that has a chunk writes them. Of an import all lanes know them from now on.
void StateUpkeep::begin_with_counts(const StateMove& move,
                                    std::span<const std::uint64_t> share_begins,
                                    const shm::Sharding& sharding) const {
  if (!move.imports) {
    if (sharding.lane(0) == ops_.shape().lane) move.part.write_counts(share_begins, move.room);
    return;
  }
  TensorLane& lane = lane_of(*move.tensor);
  lane.shares.begins.assign(share_begins.begin(), share_begins.end());
  lane.shares.counts_crc = move.part.header().counts_crc;
}

// Of an operation with one leg, by its own chunks: so a lane touches what its ops do.
bool StateUpkeep::move_elements(const StateMove& move, const shm::Sharding& sharding,
                                std::uint32_t chunk) const {
  StatePart::Elements elements{sharding.chunk_begin(chunk), 0};
  const auto begins = share_begins_of(move);
  const collective::ShareChunks shares(sharding, ops_.shape(), collective::kNoSlot,
                                       begins.empty() ? nullptr : begins.data());
  if (!plan::find(move.part.header().kind)->has_shares()) {
    elements.count = sharding.chunk_size(chunk);
  } else if (shares.has(chunk)) {
    elements = {shares.begin(chunk), shares.size(chunk)};
  } else {
    return true;  // a short share has no chunk in the last rounds
  }
  const CodecState& codec = move.tensor->codec;
  if (!move.imports) {
    move.part.export_elements(codec, elements, move.room);
    return true;
  }
  if (move.same_layout) {
    return move.part.import_elements(codec, elements, move.room.subspan(move.own));
  }
  return move.part.refold_elements(codec, elements, move.room, takes_over(move, shares, chunk));
}

// Of a sum the node after the owner, whose own contribution is never encoded; of what moves the
// node whose it is.
bool StateUpkeep::takes_over(const StateMove& move, const collective::ShareChunks& shares,
                             std::uint32_t chunk) const {
  const collective::GroupShape& shape = ops_.shape();
  const plan::Plan& plan = *plan::find(move.part.header().kind);
  const std::uint32_t rank =
      plan.has_root ? move.part.header().root - std::uint32_t{1} : shares.sharer(chunk);
  const std::uint32_t owner = shape.node_of_rank(rank);
  return (plan.reduces() ? (owner + 1) % shape.nodes() : owner) == shape.node;
}

bool StateUpkeep::move_chunk(const StateMove& move, const shm::Sharding& sharding,
                             std::uint32_t chunk) const {
  TensorState& tensor = *move.tensor;
  if (move.imports && tensor.codec.has_streams()) {
    lane_of(tensor).streams.sent = lane_of(tensor).streams.received = true;
  }
  const bool has_one_leg = move.part.header().has_one_leg();
  if (!move.imports && has_one_leg) return move_elements(move, sharding, chunk);
  if (!move.imports) {
    move.part.export_chunk(tensor.codec, chunk, move.room);
    return true;
  }
  if (tensor.tuning && codec::needs_residual(tensor.declared.recipe)) {
    tensor.tuning->residual_pending(chunk) = 1;
  }
  if (has_one_leg) return move_elements(move, sharding, chunk);
  return move.same_layout ? move.part.import_chunk(tensor.codec, chunk,
                                                   move.room.subspan(move.own, move.part.bytes()))
                          : move.part.refold_chunk(tensor.codec, chunk, move.room);
}

}  // namespace tern::daemon
