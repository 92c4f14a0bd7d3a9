// Submission: a foreign entry becomes an op, or an error for who sent it.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "codec/entropy/codebook.h"
#include "daemon/lane/entry_check.h"
#include "daemon/lane/lane.h"
#include "daemon/lane/lane_group.h"

namespace tern::daemon {

using collective::OpId;

namespace {

// AnnounceBody::memory of a tensor that is declared with xordelta.
constexpr std::uint8_t kMemoryLastValues = 4;

}  // namespace

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

bool LaneGroup::choose_recipe(const shm::SubmitEntry& entry, const plan::Plan& plan,
                              const TensorState* tensor, OpData& data, wire::AnnounceBody& body,
                              const char*& problem) const {
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
  // The tuner may take any of its candidates, as far as the op may have one.
  data.tuning = tensor != nullptr && data.recipe.automatic ? tensor->tuning.get() : nullptr;
  const bool tuned = data.tuning != nullptr;
  // Values that a node cannot decline to get with an announcement have one leg on all nodes.
  const bool may_decline = plan.eager == plan::Eager::contributions;
  data.lossless = ((tuned && plan.reduces()) || codec::is_lossless(data.recipe)) && float_type &&
                  nodes_ > 1 && bytes >= setup_.lossy_min_bytes &&
                  bytes > (may_decline ? 0 : setup_.shape.eager_bytes);
  data.lossy = tensor != nullptr && !tensor->exempt && role_may_be_lossy(tensor->role) &&
               plan.may_lose && float_type &&
               (reduction == Reduction::sum || reduction == Reduction::average) && nodes_ > 1 &&
               bytes > 0 && bytes >= setup_.lossy_min_bytes &&
               (tuned || codec::is_lossy(data.recipe));
  if (!plan.reduces() || (!data.lossless && !data.lossy)) data.tuning = nullptr;
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
      ops_.fail(op, {Errc::cancelled, number, text});
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
  if (cancels(entry)) return cancel(client, entry);
  op_seen_ = true;
  const auto place = std::find(clients_.begin(), clients_.end(), &client);
  if (place == clients_.end()) {
    return lane_->refuse(client, entry.ticket, Errc::invalid_argument,
                         "this client is not a member of the group");
  }
  const auto local_rank = static_cast<std::uint32_t>(place - clients_.begin());
  const std::uint32_t number = setup_.shape.ranks[self_][local_rank];
  const auto declared = tensors_.find(entry.tensor);
  TensorState* const tensor =
      entry.tensor != 0 && declared != tensors_.end() ? declared->second : nullptr;
  const auto arena = client.memory->segment.arena();
  const CheckedEntry checked =
      check_entry(entry, {setup_.shape, setup_.size, number, arena.size(), tensor});
  if (checked.problem != nullptr) {
    return lane_->refuse(client, entry.ticket, checked.code, checked.problem);
  }
  const plan::Plan& plan = *checked.plan;
  if (ops_.ended()) {
    lane_->tell(client, entry.ticket, ops_.departures().code(), ops_.departures().text().data(), 0);
    return;
  }
  OpData data;
  wire::AnnounceBody body{};
  const char* problem = nullptr;
  if (!choose_recipe(entry, plan, tensor, data, body, problem)) {
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
  body.root = plan.has_root ? entry.root : 0;
  body.rank = number;
  body.generation = tensor != nullptr ? tensor->generation : 0;

  OpId op = collective::kNoSlot;
  const collective::OpKey key{entry.tensor, entry.sequence};
  const bool first =
      ops_.find(key) == collective::kNoSlot || ops_.op(ops_.find(key)).submitted == 0;
  const auto result =
      ops_.on_submit({local_rank, key, body, entry.priority, data.submitted_ns}, op);
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
    if (data.tuning != nullptr) {
      take_choice(op);
      // A tensor of one chunk, which is this lane's, that owes something pays on the two legs.
      const bool small = entry.count * dtype_bytes(tensor->dtype) <= setup_.shape.eager_bytes;
      const bool owes = small && data.lossy && data.tuning->owes(0) != 0;
      if (!chooses_raw(op) || owes) ops_.compress(op);
    } else if (data.lossy || (data.lossless && plan.reduces())) {
      ops_.compress(op);
    }
  }
  OpRank& rank = rank_of(op, local_rank);
  rank.ticket = entry.ticket;
  rank.input = arena.data() + entry.input_offset;
  rank.output = arena.data() + entry.output_offset;
  rank.prescale = std::bit_cast<float>(entry.prescale_bits);
  rank.lanes = checked.lanes;
  rank.present = true;
  rank.told = false;
  ++client.uses;
}

}  // namespace tern::daemon
