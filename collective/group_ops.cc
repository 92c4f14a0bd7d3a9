#include "collective/group_ops.h"

#include <algorithm>
#include <bit>
#include <cstdio>

#include "base/check.h"
#include "collective/op_sets.h"
#include "shm/op_kind_name.h"

namespace tern::collective {
namespace {

// Everything that ranks must agree on; `rank`, eager bytes, prescale and lost streams are each
// node's own.
bool same_op(const wire::AnnounceBody& a, const wire::AnnounceBody& b) noexcept {
  return a.count == b.count && a.kind == b.kind && a.dtype == b.dtype &&
         a.reduction == b.reduction && a.role == b.role && a.memory == b.memory &&
         a.alpha_bits == b.alpha_bits && a.state_scale_bits == b.state_scale_bits &&
         a.flags == b.flags && a.root == b.root && a.generation == b.generation;
}

int describe_to(std::span<char> out, const wire::AnnounceBody& body) noexcept {
  const auto dtype = dtype_name(static_cast<DType>(body.dtype));
  const auto reduction = reduction_name(static_cast<Reduction>(body.reduction));
  const auto role = role_name(static_cast<Role>(body.role));
  if (is_kind(body, shm::OpKind::broadcast)) {
    return std::snprintf(out.data(), out.size(), "rank %u says broadcast %llu %.*s from %u (%.*s)",
                         body.rank, static_cast<unsigned long long>(body.count),
                         static_cast<int>(dtype.size()), dtype.data(), body.root,
                         static_cast<int>(role.size()), role.data());
  }
  return std::snprintf(
      out.data(), out.size(), "rank %u says %s %llu %.*s %.*s (%.*s, memory %u, gen %llu)",
      body.rank, shm::op_kind_name(body.kind), static_cast<unsigned long long>(body.count),
      static_cast<int>(dtype.size()), dtype.data(), static_cast<int>(reduction.size()),
      reduction.data(), static_cast<int>(role.size()), role.data(), body.memory,
      static_cast<unsigned long long>(body.generation));
}

}  // namespace

GroupOps::GroupOps(GroupShape shape)
    : shape_(std::move(shape)),
      nodes_(static_cast<std::uint32_t>(shape_.ranks.size())),
      window_(shape_.contribution_window != 0 ? shape_.contribution_window
                                              : contribution_window(shape_.chunk_bytes, nodes_)),
      local_ranks_(static_cast<std::uint32_t>(shape_.ranks[shape_.node].size())) {
  TERN_CHECK(nodes_ >= 1 && nodes_ <= kMaxNodes && local_ranks_ >= 1 &&
             local_ranks_ <= kMaxLocalRanks);
  // Every node may have max_ops_in_flight ops that the others do not know yet; one share more is
  // for ops that have failed before this node's ranks submitted them.
  const std::size_t slots = std::size_t{shape_.max_ops_in_flight} * (nodes_ + 1);
  ops_.resize(slots);
  used_.resize(slots);
  progress_.resize(slots * nodes_);
  parked_.resize(slots);
  free_ops_.resize(slots);
  for (std::size_t i = 0; i < slots; ++i) free_ops_[i] = static_cast<OpId>(slots - 1 - i);
  chunks_.resize(shape_.active_chunks);
  free_chunks_.resize(shape_.active_chunks);
  for (std::uint32_t i = 0; i < shape_.active_chunks; ++i) {
    free_chunks_[i] = shape_.active_chunks - 1 - i;
  }
  for (auto* list : {&to_announce_, &to_fail_remote_, &to_complete_, &to_tell_, &running_})
    list->reserve(slots);
}

std::uint64_t GroupOps::all_nodes() const noexcept { return low_bits(nodes_); }
std::uint64_t GroupOps::all_local() const noexcept { return low_bits(local_ranks_); }

std::uint32_t GroupOps::node_of_rank(std::uint32_t rank) const noexcept {
  for (std::uint32_t node = 0; node < nodes_; ++node) {
    const auto& ranks = shape_.ranks[node];
    if (std::find(ranks.begin(), ranks.end(), rank) != ranks.end()) return node;
  }
  return kNobody;
}

// ---- Slots --------------------------------------------------------------------------------------

OpId GroupOps::find(const OpKey& key) const noexcept {
  const auto found = by_tensor_.find(key.tensor);
  if (found == by_tensor_.end()) return kNoOp;
  for (const OpId id : found->second) {
    if (ops_[id].key.sequence == key.sequence) return id;
  }
  return kNoOp;
}

// All local ranks have submitted this op, and it is not live: it has ended here.
bool GroupOps::superseded(const OpKey& key) const noexcept {
  const auto found = uses_.find(key.tensor);
  return found != uses_.end() && key.sequence < found->second.submitted_below;
}

OpId GroupOps::create(const OpKey& key) {
  if (free_ops_.empty()) return kNoOp;
  const OpId id = free_ops_.back();
  free_ops_.pop_back();
  used_[id] = true;
  ops_[id] = Op{};
  ops_[id].key = key;
  ops_[id].order = next_order_++;
  parked_[id].clear();
  for (std::uint32_t node = 0; node < nodes_; ++node) progress(id, node) = Progress{};
  by_tensor_[key.tensor].push_back(id);
  ++live_;
  return id;
}

void GroupOps::release(OpId id) {
  Op& op = ops_[id];
  TERN_CHECK(used_[id] && op.completing);
  const std::uint64_t tensor = op.key.tensor;
  if (op.failed && !ended_ && still_expected(op)) {
    op.completing = false;  // stays as the memory of its failure until all local ranks have come
  } else {
    // A rank that has left submits no more: late frames of others must not bring the op back.
    auto& uses = uses_[tensor];
    uses.submitted_below = std::max(uses.submitted_below, op.key.sequence + 1);
    if (op.submitted != 0) --local_ops_;
    if (!op.failed) ++completed_;
    auto& live = by_tensor_[tensor];
    live.erase(std::find(live.begin(), live.end(), id));
    used_[id] = false;
    free_ops_.push_back(id);
    --live_;
  }
  if (tensor == 0) return;
  // The next use of the tensor may have waited for this one.
  OpId next = kNoOp;
  for (const OpId other : by_tensor_[tensor]) {
    const Op& candidate = ops_[other];
    if (candidate.failed) continue;
    if (next == kNoOp || candidate.key.sequence < ops_[next].key.sequence) next = other;
  }
  if (next != kNoOp && ops_[next].submitted == all_local() &&
      (ops_[next].announced & bit(shape_.node)) == 0 &&
      std::find(to_announce_.begin(), to_announce_.end(), next) == to_announce_.end()) {
    to_announce_.push_back(next);
  }
}

bool GroupOps::still_expected(const Op& op) const noexcept {
  return (op.submitted | left_local_) != all_local();
}

// ---- Submission and announcement ----------------------------------------------------------------

void GroupOps::describe(Op& op, const wire::AnnounceBody& body) {
  op.said = body;
  op.described = true;
  const auto dtype = static_cast<DType>(body.dtype);
  const bool one_lane = (body.flags & wire::kAnnounceOneLane) != 0;
  const bool broadcast = is_kind(body, shm::OpKind::broadcast);
  op.root_node = broadcast ? node_of_rank(body.root) : 0;
  const auto sharding = shm::make_sharding(op.key.tensor, op.key.sequence, body.count, dtype,
                                           shape_.chunk_bytes, nodes_, shape_.lanes, one_lane);
  op.chunks = ChunkMap(sharding, shape_.lane,
                       broadcast ? ChunkMap::Ownership::one_node : ChunkMap::Ownership::striped,
                       op.root_node);
  op.eager = body.count * dtype_bytes(dtype) <= shape_.eager_bytes;
  // Known before the op starts here: the root of a broadcast may have heard of all nodes earlier.
  if (!op.eager) op.chunks_left = op.chunks.owned_by_all();
}

void GroupOps::compress(OpId id) {
  ops_[id].compressed = true;
  decline_eager(id);
}

void GroupOps::decline_eager(OpId id) {
  Op& op = ops_[id];
  if (!op.eager || op.started || op.failed) return;
  op.eager = false;
  op.chunks_left = op.chunks.owned_by_all();
}

// Whether the values that came with an announcement are those that it should bring.
bool GroupOps::eager_bytes_agree(OpId id, std::uint32_t node, const wire::AnnounceBody& body) {
  const Op& op = ops_[id];
  const std::uint64_t bytes = body.count * dtype_bytes(static_cast<DType>(body.dtype));
  if (bytes == 0 || bytes > shape_.eager_bytes) return body.eager_bytes == 0;
  if (is_kind(body, shm::OpKind::broadcast)) {
    return body.eager_bytes == (op.root_node == node ? bytes : 0);
  }
  if (body.eager_bytes == 0) decline_eager(id);
  return body.eager_bytes == 0 || body.eager_bytes == bytes;
}

// Fails the op if body differs from what was said before.
bool GroupOps::agrees(OpId id, const wire::AnnounceBody& body) {
  Op& op = ops_[id];
  if (!op.described) {
    describe(op, body);
    return true;
  }
  if (same_op(op.said, body)) return true;
  char text[sizeof(Op::text)];
  int used = describe_to(text, op.said);
  if (used > 0 && static_cast<std::size_t>(used) + 3 < sizeof(text)) {
    std::copy_n(", ", 2, text + used);
    used += 2;
    describe_to(std::span(text).subspan(static_cast<std::size_t>(used)), body);
  }
  fail(id, Errc::mismatch, body.rank, text);
  return false;
}

GroupOps::SubmitResult GroupOps::on_submit(std::uint32_t local_rank, const OpKey& key,
                                           const wire::AnnounceBody& body, std::int32_t priority,
                                           std::uint64_t now_ns, OpId& id) {
  id = find(key);
  if (id == kNoOp && superseded(key)) return SubmitResult::duplicate;
  if (id != kNoOp && (ops_[id].submitted & bit(local_rank)) != 0) return SubmitResult::duplicate;
  if (id == kNoOp || ops_[id].submitted == 0) {
    if (local_ops_ >= shape_.max_ops_in_flight) return SubmitResult::too_many;
    if (id == kNoOp) id = create(key);
    if (id == kNoOp) return SubmitResult::too_many;
    ++local_ops_;
    ops_[id].first_submit_ns = now_ns;
    ops_[id].priority = priority;
  }
  Op& op = ops_[id];
  op.submitted |= bit(local_rank);
  if (op.submitted == all_local()) {
    auto& uses = uses_[key.tensor];
    uses.submitted_below = std::max(uses.submitted_below, key.sequence + 1);
  }
  if (op.failed) {
    complete_again(id);  // failed before this rank came: it is told the same
    return SubmitResult::accepted;
  }
  if (!agrees(id, body)) return SubmitResult::accepted;
  if (left_local_ != 0) {
    const auto left = static_cast<std::uint32_t>(std::countr_zero(left_local_));
    const std::uint32_t rank = shape_.ranks[shape_.node][left];
    char text[64];
    std::snprintf(text, sizeof(text), "rank %u has left the group", rank);
    fail(id, Errc::group_left, rank, text);
    return SubmitResult::accepted;
  }
  if (op.submitted == all_local()) locally_ready(id);
  return SubmitResult::accepted;
}

void GroupOps::locally_ready(OpId id) {
  const Op& op = ops_[id];
  if (op.key.tensor != 0) {
    for (const OpId other : by_tensor_[op.key.tensor]) {
      const Op& earlier = ops_[other];
      if (earlier.key.sequence < op.key.sequence && !earlier.failed)
        return;  // release() comes back
    }
  }
  to_announce_.push_back(id);
}

bool GroupOps::on_announce(std::uint32_t node, const OpKey& key, const wire::AnnounceBody& body,
                           OpId& id) {
  id = find(key);
  if (id == kNoOp) {
    if (superseded(key) || ended_) return true;
    id = create(key);
    if (id == kNoOp) return false;  // more ops in flight than this node may have
  }
  Op& op = ops_[id];
  if ((op.announced & bit(node)) != 0) return false;
  if (op.failed) {
    id = kNoOp;
    return true;
  }
  if (!agrees(id, body)) {
    id = kNoOp;
    return true;
  }
  if (!eager_bytes_agree(id, node, body)) return false;
  op.announced |= bit(node);
  if ((left_local_ & ~op.submitted) != 0) {
    const auto left = static_cast<std::uint32_t>(std::countr_zero(left_local_ & ~op.submitted));
    const std::uint32_t rank = shape_.ranks[shape_.node][left];
    char text[64];
    std::snprintf(text, sizeof(text), "rank %u has left the group", rank);
    fail(id, Errc::group_left, rank, text);
    return true;
  }
  if (op.announced == all_nodes()) start(id);
  return true;
}

bool GroupOps::on_submitted(std::uint32_t node, const OpKey& key, std::uint64_t ranks) {
  if ((ranks & ~low_bits(static_cast<std::uint32_t>(shape_.ranks[node].size()))) != 0) return false;
  OpId id = find(key);
  if (id == kNoOp) {
    if (superseded(key) || ended_) return true;
    id = create(key);  // it will be announced or fail, as one that has been announced will
    if (id == kNoOp) return true;  // no room for what nobody here knows
  }
  progress(id, node).submitted |= ranks;
  return true;
}

void GroupOps::start(OpId id) {
  Op& op = ops_[id];
  op.started = true;
  const auto before = [this](OpId a, OpId b) {
    const Op& x = ops_[a];
    const Op& y = ops_[b];
    return x.priority != y.priority ? x.priority > y.priority : x.order < y.order;
  };
  running_.insert(std::upper_bound(running_.begin(), running_.end(), id, before), id);
  if (!op.eager) check_delivered(id);
}

// ---- Look ---------------------------------------------------------------------------------------

std::uint32_t GroupOps::chunk_number(ChunkId chunk) const noexcept {
  const Chunk& slot = chunks_[chunk];
  return ops_[slot.op].chunks.chunk(shape_.node, slot.index);
}

ChunkId GroupOps::chunk_slot(OpId op, std::uint32_t index) const noexcept {
  for (ChunkId chunk = 0; chunk < chunks_.size(); ++chunk) {
    if (chunks_[chunk].op == op && chunks_[chunk].index == index) return chunk;
  }
  return kNoOp;
}

bool GroupOps::waiting_to_be_added(ChunkId chunk, std::uint32_t node) const noexcept {
  return (chunks_[chunk].arrived & bit(node)) != 0;
}

std::size_t GroupOps::missing_ranks(OpId id, std::span<std::uint32_t> out) const noexcept {
  const Op& op = ops_[id];
  std::size_t count = 0;
  for (std::uint32_t node = 0; node < nodes_; ++node) {
    const auto& ranks = shape_.ranks[node];
    if (node != shape_.node && (op.announced & bit(node)) != 0) continue;
    const std::uint64_t here = node == shape_.node ? op.submitted : progress(id, node).submitted;
    for (std::uint32_t i = 0; i < ranks.size(); ++i) {
      if ((here & bit(i)) != 0) continue;
      if (count < out.size()) out[count] = ranks[i];
      ++count;
    }
  }
  return count;
}

}  // namespace tern::collective
