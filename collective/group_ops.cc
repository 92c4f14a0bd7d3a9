#include "collective/group_ops.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>

#include "base/check.h"

namespace tern::collective {
namespace {

constexpr std::uint64_t bit(std::uint32_t index) noexcept { return std::uint64_t{1} << index; }
constexpr std::uint64_t low_bits(std::uint32_t count) noexcept {
  return count >= 64 ? ~std::uint64_t{0} : bit(count) - 1;
}

void copy_text(std::span<char> out, std::string_view text) noexcept {
  const std::size_t bytes = std::min(text.size(), out.size() - 1);
  std::memcpy(out.data(), text.data(), bytes);
  out[bytes] = '\0';
}

const char* kind_name(std::uint16_t kind) noexcept {
  switch (static_cast<shm::OpKind>(kind)) {
    case shm::OpKind::all_reduce: return "all_reduce";
    case shm::OpKind::broadcast: return "broadcast";
    case shm::OpKind::barrier: return "barrier";
    case shm::OpKind::cancel: break;
  }
  return "unknown op";
}

bool is_kind(const wire::AnnounceBody& body, shm::OpKind kind) noexcept {
  return body.kind == static_cast<std::uint16_t>(kind);
}

// Everything that ranks must agree on; `rank`, eager bytes and prescale are each node's own.
bool same_op(const wire::AnnounceBody& a, const wire::AnnounceBody& b) noexcept {
  return a.count == b.count && a.kind == b.kind && a.dtype == b.dtype &&
         a.reduction == b.reduction && a.role == b.role && a.memory == b.memory &&
         a.one_lane == b.one_lane && a.exempt == b.exempt && a.root == b.root &&
         a.generation == b.generation;
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
  return std::snprintf(out.data(), out.size(), "rank %u says %s %llu %.*s %.*s (%.*s, memory %u, gen %llu)",
                       body.rank, kind_name(body.kind), static_cast<unsigned long long>(body.count),
                       static_cast<int>(dtype.size()), dtype.data(),
                       static_cast<int>(reduction.size()), reduction.data(),
                       static_cast<int>(role.size()), role.data(), body.memory,
                       static_cast<unsigned long long>(body.generation));
}

}  // namespace

GroupOps::GroupOps(GroupShape shape)
    : shape_(std::move(shape)),
      nodes_(static_cast<std::uint32_t>(shape_.ranks.size())),
      local_ranks_(static_cast<std::uint32_t>(shape_.ranks[shape_.node].size())) {
  TERN_CHECK(nodes_ >= 1 && nodes_ <= kMaxNodes && local_ranks_ >= 1 &&
             local_ranks_ <= kMaxLocalRanks);
  // Every node may have max_ops_in_flight ops that the others do not know yet; one share more is for
  // ops that have failed before this node's ranks submitted them.
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
  for (auto* list : {&to_announce_, &to_fail_remote_, &to_complete_, &running_}) list->reserve(slots);
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

// ---- Submission and announcement -----------------------------------------------------------------

void GroupOps::describe(Op& op, const wire::AnnounceBody& body) {
  op.said = body;
  op.described = true;
  const auto dtype = static_cast<DType>(body.dtype);
  const bool one_lane = body.one_lane != 0;
  const bool broadcast = is_kind(body, shm::OpKind::broadcast);
  op.root_node = broadcast ? node_of_rank(body.root) : 0;
  const auto sharding = shm::make_sharding(op.key.tensor, op.key.sequence, body.count, dtype,
                                           shape_.chunk_bytes, nodes_, shape_.lanes, one_lane);
  op.chunks = ChunkMap(sharding, shape_.lane,
                       broadcast ? ChunkMap::Ownership::one_node : ChunkMap::Ownership::striped,
                       op.root_node);
  op.eager = body.count * dtype_bytes(dtype) <= shape_.eager_bytes;
  // Known before the op starts here: the root of a broadcast may have heard of all nodes earlier.
  for (std::uint32_t node = 0; node < nodes_ && !op.eager; ++node) {
    op.chunks_left += op.chunks.owned(node);
  }
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
    std::memcpy(text + used, ", ", 2);
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
      if (earlier.key.sequence < op.key.sequence && !earlier.failed) return;  // release() comes back
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
  const bool carries = op.eager && (!is_kind(body, shm::OpKind::broadcast) || op.root_node == node);
  const std::uint64_t expected =
      carries ? body.count * dtype_bytes(static_cast<DType>(body.dtype)) : 0;
  if (body.eager_bytes != expected) return false;
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

// ---- Data legs ------------------------------------------------------------------------------------

bool GroupOps::on_grant(std::uint32_t node, const OpKey& key, std::uint32_t chunk,
                        std::uint32_t count) {
  const OpId id = find(key);
  if (id == kNoOp) return superseded(key) || ended_;
  const Op& op = ops_[id];
  if (op.failed || op.completing) return true;
  // An owner grants after all have announced, and this node is one of them.
  if (!op.described || (op.announced & bit(shape_.node)) == 0 || op.eager ||
      !is_kind(op.said, shm::OpKind::all_reduce)) {
    return false;
  }
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
  const bool compare = shape_.verify && !is_kind(op.said, shm::OpKind::barrier) &&
                       nodes_ * local_ranks_ > 1;
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

// ---- Failure --------------------------------------------------------------------------------------

void GroupOps::fail_here(OpId id, Errc code, std::uint32_t about_rank, std::string_view text) {
  Op& op = ops_[id];
  if (op.failed || op.completing) return;
  op.failed = true;
  op.status = code;
  op.about_rank = about_rank;
  copy_text(op.text, text);
  running_.erase(std::remove(running_.begin(), running_.end(), id), running_.end());
  to_announce_.erase(std::remove(to_announce_.begin(), to_announce_.end(), id), to_announce_.end());
  if (std::find(to_complete_.begin(), to_complete_.end(), id) == to_complete_.end()) {
    to_complete_.push_back(id);
  }
}

// For the memory of a failure, when a rank has come or nobody is waited for any more. If the op is
// being completed, the rank that came is told then.
void GroupOps::complete_again(OpId id) {
  if (ops_[id].completing) return;
  if (std::find(to_complete_.begin(), to_complete_.end(), id) == to_complete_.end()) {
    to_complete_.push_back(id);
  }
}

void GroupOps::fail(OpId id, Errc code, std::uint32_t about_rank, std::string_view text) {
  if (ops_[id].failed || ops_[id].completing) return;
  fail_here(id, code, about_rank, text);
  if (nodes_ > 1 && !ended_) to_fail_remote_.push_back(id);
}

void GroupOps::on_op_fail(std::uint32_t, const OpKey& key, Errc code, std::uint32_t about_rank,
                          std::string_view text) {
  fail_key(key, code, about_rank, text, false);
}

void GroupOps::fail_key(const OpKey& key, Errc code, std::uint32_t about_rank, std::string_view text,
                        bool tell_others) {
  OpId id = find(key);
  if (id == kNoOp) {
    if (superseded(key) || ended_) return;
    id = create(key);
    if (id == kNoOp) return;
  }
  if (tell_others) {
    fail(id, code, about_rank, text);
  } else {
    fail_here(id, code, about_rank, text);
  }
}

void GroupOps::on_rank_left(std::uint32_t local_rank) {
  left_local_ |= bit(local_rank);
  const std::uint32_t rank = shape_.ranks[shape_.node][local_rank];
  char text[64];
  std::snprintf(text, sizeof(text), "rank %u has left the group", rank);
  for (OpId id = 0; id < ops_.size(); ++id) {
    if (!used_[id] || ops_[id].completing) continue;
    if (ops_[id].failed && !still_expected(ops_[id])) complete_again(id);
    // Also what it has submitted: its memory is the application's again.
    fail(id, Errc::group_left, rank, text);
  }
}

void GroupOps::end(Errc code, std::string_view text) {
  if (ended_) return;
  ended_ = true;
  end_code_ = code;
  copy_text(end_text_, text);
  to_fail_remote_.clear();
  for (OpId id = 0; id < ops_.size(); ++id) {
    if (!used_[id]) continue;
    if (ops_[id].failed) complete_again(id);  // release() forgets it now
    fail_here(id, code, kNobody, text);
  }
}

void GroupOps::expire(std::uint64_t now_ns, std::uint64_t timeout_ns) {
  for (OpId id = 0; id < ops_.size(); ++id) {
    if (!used_[id]) continue;
    const Op& op = ops_[id];
    if (op.failed || op.started || op.completing || op.submitted == 0) continue;
    if (now_ns - op.first_submit_ns < timeout_ns) continue;
    std::uint32_t missing[16];
    const std::size_t count = missing_ranks(id, missing);
    char text[sizeof(Op::text)];
    int used = std::snprintf(text, sizeof(text), "after %llu ms not submitted by rank",
                             static_cast<unsigned long long>(timeout_ns / 1'000'000));
    for (std::size_t i = 0; i < std::min<std::size_t>(count, 16) && used < 170; ++i) {
      used += std::snprintf(text + used, sizeof(text) - static_cast<std::size_t>(used), "%s %u",
                            i == 0 ? "" : ",", missing[i]);
    }
    fail(id, Errc::op_timeout, count > 0 ? missing[0] : kNobody, text);
  }
}

// ---- Actions --------------------------------------------------------------------------------------

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
    if (slot.position == 0) {
      action.kind = ActionKind::begin;
      return action;
    }
    if (slot.position == nodes_) {
      if (room.results == 0) continue;
      action.kind = ActionKind::finish;
      return action;
    }
    // The fixed order: the owner, then the nodes after it.
    action.node = (self + slot.position) % nodes_;
    if ((slot.arrived & bit(action.node)) != 0) {
      action.kind = ActionKind::add;
      return action;
    }
  }
  if (room.contributions > 0) {
    for (std::uint32_t step = 1; step < nodes_; ++step) {
      const std::uint32_t node = (self + step) % nodes_;
      Progress& with = progress(id, node);
      if (with.sent >= with.granted) continue;
      action.kind = ActionKind::contribute;
      action.node = node;
      action.index = with.sent++;
      return action;
    }
  }
  const std::uint32_t owned = op.chunks.owned(self);
  if (!parked_[id].empty() && op.finished + op.parked == owned && room.results > 0) {
    action.kind = ActionKind::finish_parked;
    action.index = parked_[id].back();
    parked_[id].pop_back();
    return action;
  }
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
    }
  }
  return action;
}

// ---- Look -----------------------------------------------------------------------------------------

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
    for (std::uint32_t i = 0; i < ranks.size(); ++i) {
      if (node == shape_.node && (op.submitted & bit(i)) != 0) continue;
      if (count < out.size()) out[count] = ranks[i];
      ++count;
    }
  }
  return count;
}

}  // namespace tern::collective
