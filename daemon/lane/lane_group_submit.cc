// Submission: a foreign entry becomes an op, or an error for who sent it.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "codec/entropy/codebook.h"
#include "daemon/lane/lane.h"
#include "daemon/lane/lane_group.h"

namespace tern::daemon {

using collective::OpId;
using shm::OpKind;

namespace {

// AnnounceBody::memory of a tensor that is declared with xordelta.
constexpr std::uint8_t kMemoryLastValues = 4;

bool in_arena(std::uint64_t offset, std::uint64_t bytes, std::uint64_t arena_bytes) noexcept {
  return bytes <= arena_bytes && offset <= arena_bytes - bytes;
}

}  // namespace

// Null if the entry (a copy of ours) is sound; else what is wrong with it.
const char* LaneGroup::check_entry(const LaneClient& client, const shm::SubmitEntry& entry,
                                   std::uint32_t& local_rank, TensorState*& tensor) const {
  const auto kind = static_cast<OpKind>(entry.kind);
  if (kind != OpKind::all_reduce && kind != OpKind::broadcast && kind != OpKind::barrier) {
    return "unknown kind of operation";
  }
  const std::size_t element = dtype_bytes(static_cast<DType>(entry.dtype));
  if (element == 0) return "unknown dtype";
  if (entry.reduction > static_cast<std::uint8_t>(Reduction::product)) return "unknown reduction";
  if (entry.role > static_cast<std::uint8_t>(Role::weights)) return "unknown role";
  if (entry.flags != 0 || entry.reserved0 != 0 || entry.counts_offset != 0 ||
      entry.wait_event != 0 || entry.signal_event != 0) {
    return "a reserved field is not zero";
  }
  for (const auto word : entry.reserved1) {
    if (word != 0) return "a reserved field is not zero";
  }
  local_rank = local_ranks_;
  for (std::uint32_t i = 0; i < local_ranks_; ++i) {
    if (clients_[i] == &client) local_rank = i;
  }
  if (local_rank == local_ranks_) return "this client is not a member of the group";
  if (kind == OpKind::barrier && (entry.count != 0 || entry.tensor != 0)) {
    return "a barrier has no elements";
  }
  if (entry.count > (std::uint64_t{1} << 40)) return "too many elements";
  if (entry.input_region != 0 || entry.output_region != 0) return "unknown memory region";
  const std::uint64_t bytes = entry.count * element;
  const std::uint64_t arena = client.memory->segment.arena_bytes();
  if (!in_arena(entry.input_offset, bytes, arena) || !in_arena(entry.output_offset, bytes, arena)) {
    return "the tensor is not inside the client's arena";
  }
  if (entry.input_offset % element != 0 || entry.output_offset % element != 0) {
    return "the tensor is not aligned to its element";
  }
  const bool average = entry.reduction == static_cast<std::uint8_t>(Reduction::average);
  if (average && !dtype_is_float(static_cast<DType>(entry.dtype))) {
    return "average is not defined for integers";
  }
  if (!std::isfinite(std::bit_cast<float>(entry.state_scale_bits))) {
    return "state_scale is not a finite number";
  }
  const float prescale = std::bit_cast<float>(entry.prescale_bits);
  if (prescale != 1.0f && !dtype_is_float(static_cast<DType>(entry.dtype))) {
    return "prescale is not defined for integers";
  }
  if (entry.root >= setup_.size) return "the root is not a rank of the group";
  if (entry.recipe[sizeof(entry.recipe) - 1] != '\0') return "the recipe's text does not end";
  tensor = nullptr;
  if (entry.tensor != 0) {
    const auto found = tensors_.find(entry.tensor);
    if (found == tensors_.end()) return "the tensor is not declared in this group";
    tensor = found->second;
    if (tensor->dtype != static_cast<DType>(entry.dtype) || tensor->count != entry.count) {
      return "dtype or count differ from the tensor's declaration";
    }
    // State was made, or not, for the declared role.
    if (tensor->role != static_cast<Role>(entry.role)) {
      return "the role differs from the tensor's declaration";
    }
  }
  const auto sharding = shm::make_sharding(
      entry.tensor, entry.sequence, entry.count, static_cast<DType>(entry.dtype),
      setup_.shape.chunk_bytes, nodes_, setup_.shape.lanes, tensor != nullptr && tensor->one_lane);
  if (!sharding.uses_lane(setup_.shape.lane)) return "the operation does not belong on this lane";
  return nullptr;
}

// An op's own recipe must fit what the declaration made room for.
bool LaneGroup::may_replace(const codec::Recipe& recipe, const codec::Recipe& declared,
                            const shm::SubmitEntry& entry, const char*& problem) const {
  if (!codec::is_lossy(recipe)) return true;
  if (const char* objection = codec::objection_to_parts(recipe)) {
    problem = objection;
    return false;
  }
  const auto dtype = static_cast<DType>(entry.dtype);
  const std::size_t chunk = shm::chunk_elements(setup_.shape.chunk_bytes, dtype);
  if (codec::encode_bound(recipe, chunk) > chunk * dtype_bytes(dtype)) {
    problem = "blocks of the recipe may be longer than the tensor itself";
    return false;
  }
  if (recipe.entropy.kind == codec::entropy::Kind::huffman_static &&
      !codec::entropy::has_codebook(recipe.entropy.book.data())) {
    problem = "this node does not have the recipe's codebook";
    return false;
  }
  // The shift moves by the declaration's alpha, which a wilder compressor would turn into noise.
  codec::Recipe own_alpha = recipe;
  own_alpha.alpha = 0.0f;
  if (recipe.memory == codec::Memory::diana &&
      codec::shift_alpha(own_alpha, chunk) < codec::shift_alpha(declared, chunk)) {
    problem = "the recipe varies more than the declared one, whose alpha is too large for it";
    return false;
  }
  return true;
}

bool LaneGroup::choose_recipe(const shm::SubmitEntry& entry, const TensorState* tensor,
                              OpData& data, wire::AnnounceBody& body, const char*& problem) const {
  const auto memory = tensor != nullptr ? tensor->recipe.memory : codec::Memory::none;
  data.recipe = tensor != nullptr ? tensor->recipe : codec::Recipe{};
  const bool last_values = data.recipe.compressor == codec::Compressor::xordelta;
  body.memory = last_values ? kMemoryLastValues : static_cast<std::uint8_t>(memory);
  body.state_scale_bits =
      codec::needs_shift(data.recipe) ? entry.state_scale_bits : std::uint32_t{0};
  body.alpha_bits = tensor != nullptr ? std::bit_cast<std::uint32_t>(tensor->codec.alpha()) : 0;
  if (entry.recipe[0] != '\0') {
    codec::Recipe recipe;
    if (!codec::parse_recipe_quick(entry.recipe, recipe)) {
      problem = "the operation's recipe cannot be read";
      return false;
    }
    // Raw and bf16 say nothing of memory: they go with any declaration. Under ef, bf16 uses the
    // residual and raw leaves it alone.
    if (recipe.memory == codec::Memory::none) recipe.memory = memory;
    if (recipe.memory != memory) {
      problem = "the recipe's memory differs from the declaration's; declare the tensor with it";
      return false;
    }
    if (codec::scans_tensor(recipe) && (tensor == nullptr || !tensor->one_lane)) {
      problem = "scale=tensor must be in the tensor's declaration";
      return false;
    }
    if (recipe.compressor == codec::Compressor::xordelta && !last_values) {
      problem = "xordelta must be in the tensor's declaration";
      return false;
    }
    if (!may_replace(recipe, data.recipe, entry, problem)) return false;
    data.recipe = recipe;
  }
  const auto dtype = static_cast<DType>(entry.dtype);
  const auto reduction = static_cast<Reduction>(entry.reduction);
  const std::uint64_t bytes = entry.count * dtype_bytes(dtype);
  const bool float_type = dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16;
  // A broadcast that fits in its announcement has one leg on all nodes.
  const bool broadcast = entry.kind == static_cast<std::uint16_t>(OpKind::broadcast);
  // The tuner may take any of its candidates, as far as the op may have one.
  data.tuning = tensor != nullptr && data.recipe.automatic ? tensor->tuning.get() : nullptr;
  const bool tuned = data.tuning != nullptr;
  data.lossless = ((tuned && !broadcast) || codec::is_lossless(data.recipe)) && float_type &&
                  nodes_ > 1 && bytes >= setup_.lossy_min_bytes &&
                  bytes > (broadcast ? setup_.shape.eager_bytes : 0);
  data.lossy = tensor != nullptr && !tensor->exempt && role_may_be_lossy(tensor->role) &&
               entry.kind == static_cast<std::uint16_t>(OpKind::all_reduce) && float_type &&
               (reduction == Reduction::sum || reduction == Reduction::average) && nodes_ > 1 &&
               bytes > 0 && bytes >= setup_.lossy_min_bytes &&
               (tuned || codec::is_lossy(data.recipe));
  const bool all_reduce = entry.kind == static_cast<std::uint16_t>(OpKind::all_reduce);
  if (!all_reduce || (!data.lossless && !data.lossy)) data.tuning = nullptr;
  return true;
}

void LaneGroup::cancel(LaneClient& client, const shm::SubmitEntry& entry) {
  for (OpId op = 0; op < ops_.slots(); ++op) {
    if (!ops_.in_use(op)) continue;
    for (std::uint32_t i = 0; i < local_ranks_; ++i) {
      const OpRank& rank = rank_of(op, i);
      if (clients_[i] != &client || !rank.present || rank.told || rank.ticket != entry.ticket)
        continue;
      const std::uint32_t number = setup_.shape.ranks[self_][i];
      char text[64];
      std::snprintf(text, sizeof(text), "cancelled by rank %u", number);
      ops_.fail(op, Errc::cancelled, number, text);
      return;
    }
  }
}

void LaneGroup::tell_submitted(OpId op) {
  const wire::SubmittedBody body{ops_.op(op).submitted};
  const auto header = frame(wire::FrameKind::submitted, op, 0, 0);
  for (LanePeer* peer : peers_) {
    if (peer == nullptr || peer->link->state() == net::LinkState::lost ||
        (peer->link->peer_features() & wire::kFeatureSubmitted) == 0) {
      continue;
    }
    peer->link->send_copy(header, std::as_bytes(std::span(&body, 1)));
  }
}

void LaneGroup::submit(LaneClient& client, const shm::SubmitEntry& entry) {
  if (entry.kind == static_cast<std::uint16_t>(OpKind::cancel)) return cancel(client, entry);
  op_seen_ = true;
  std::uint32_t local_rank = 0;
  TensorState* tensor = nullptr;
  if (const char* problem = check_entry(client, entry, local_rank, tensor)) {
    const bool unknown = entry.tensor != 0 && tensor == nullptr && !tensors_.contains(entry.tensor);
    return lane_->refuse(client, entry.ticket,
                         unknown ? Errc::unknown_tensor : Errc::invalid_argument, problem);
  }
  if (ops_.ended()) {
    lane_->tell(client, entry.ticket, ops_.end_code(), ops_.end_text().data(), 0);
    return;
  }
  OpData data;
  wire::AnnounceBody body{};
  const char* problem = nullptr;
  if (!choose_recipe(entry, tensor, data, body, problem)) {
    return lane_->refuse(client, entry.ticket, Errc::bad_recipe, problem);
  }
  data.tensor = tensor;
  data.state_scale = std::bit_cast<float>(entry.state_scale_bits);
  data.submitted_ns = lane_->clock().now_ns();
  body.count = entry.count;
  body.kind = entry.kind;
  body.dtype = entry.dtype;
  body.reduction = entry.reduction;
  body.role = entry.role;
  if (tensor != nullptr && tensor->one_lane) body.flags |= wire::kAnnounceOneLane;
  if (tensor != nullptr && tensor->exempt) body.flags |= wire::kAnnounceExempt;
  body.root = entry.kind == static_cast<std::uint16_t>(OpKind::broadcast) ? entry.root : 0;
  body.rank = setup_.shape.ranks[self_][local_rank];
  body.generation = tensor != nullptr ? tensor->generation : 0;

  OpId op = collective::kNoOp;
  const collective::OpKey key{entry.tensor, entry.sequence};
  const bool first = ops_.find(key) == collective::kNoOp || ops_.op(ops_.find(key)).submitted == 0;
  const auto result = ops_.on_submit(local_rank, key, body, entry.priority, data.submitted_ns, op);
  if (result == collective::GroupOps::SubmitResult::too_many) {
    return lane_->refuse(client, entry.ticket, Errc::would_block,
                         "more operations than max_ops_in_flight");
  }
  if (result == collective::GroupOps::SubmitResult::duplicate) {
    return lane_->refuse(client, entry.ticket, Errc::invalid_argument,
                         "this use of the tensor has been submitted before");
  }
  if (first) {
    for (std::uint32_t i = 0; i < local_ranks_; ++i) rank_of(op, i) = OpRank{};
    data.pins = data_[op].pins;  // a result cannot be here, but a late abandon may
    data.lead = data_[op].lead;  // the leading node may have announced it before
    data_[op] = data;
    const bool all_reduce = entry.kind == static_cast<std::uint16_t>(OpKind::all_reduce);
    if (data.tuning != nullptr) {
      take_choice(op);
      // A tensor of one chunk, which is this lane's, that owes something pays on the two legs.
      const bool small = entry.count * dtype_bytes(tensor->dtype) <= setup_.shape.eager_bytes;
      const bool owes = small && data.lossy && data.tuning->owes(0) != 0;
      if (!chooses_raw(op) || owes) ops_.compress(op);
    } else if (data.lossy || (data.lossless && all_reduce)) {
      ops_.compress(op);
    }
  }
  OpRank& rank = rank_of(op, local_rank);
  rank.ticket = entry.ticket;
  const auto arena = client.memory->segment.arena();
  rank.input = arena.data() + entry.input_offset;
  rank.output = arena.data() + entry.output_offset;
  rank.prescale = std::bit_cast<float>(entry.prescale_bits);
  const auto sharding = shm::make_sharding(
      entry.tensor, entry.sequence, entry.count, static_cast<DType>(entry.dtype),
      setup_.shape.chunk_bytes, nodes_, setup_.shape.lanes, tensor != nullptr && tensor->one_lane);
  for (std::uint32_t lane = 0; lane < setup_.shape.lanes; ++lane) {
    if (sharding.uses_lane(lane)) rank.lanes |= 1u << lane;
  }
  rank.present = true;
  rank.told = false;
  ++client.uses;
}

}  // namespace tern::daemon
