#include "daemon/lane/op_admission.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "codec/recipe.h"
#include "plan/plans.h"
#include "shm/sharding.h"
#include "wire/crc32c.h"

namespace tern::daemon {
namespace {

// What the declaration of an op without a tensor would say.
const ResolvedRecipe kAnonymous;

// Null, or why an op cannot use the tensor's codec state.
const char* objection_to_memory(const plan::Plan& plan, const LaneOp& op,
                                std::uint32_t counts_crc) noexcept {
  const TensorState* const tensor = op.tensor;
  if (tensor == nullptr || !codec::has_memory(tensor->declared.recipe)) return nullptr;
  // Of sums however small they are, and whatever recipe the op brings: a peer may send a block all
  // the same.
  if (codec::needs_shift(tensor->declared.recipe) &&
      (plan.keeps_sums() || (plan.moves() && op.encoding.lossy))) {
    return "the operation cannot have diana or ef21; declare the tensor with ef";
  }
  return !op.encoding.lossy ||
                 tensor->memory_use.admits({plan.number, plan.has_one_leg(), counts_crc})
             ? nullptr
             : "the tensor's residual is of another kind of operation, or of other counts; declare "
               "a tensor for each";
}

// REQUIRES: the entry is checked.
ClientEncoding client_encoding_of(const shm::SubmitEntry& entry) noexcept {
  return {shm::EncodedBy::of(entry.encoded_by),
          {.energy = std::bit_cast<double>(entry.encoded_energy_bits),
           .residual_energy = std::bit_cast<double>(entry.encoded_residual_bits),
           .elements = entry.encoded_elements},
          entry.encoded_ns};
}

}  // namespace

OpAdmission::Admitted OpAdmission::admit(const shm::SubmitEntry& entry,
                                         const Submitter& submitter) {
  Admitted admitted;
  TensorState* const tensor = submitter.tensor;
  if (!read_counts(entry, submitter.arena)) {
    admitted.checked.code = Errc::invalid_argument;
    admitted.checked.problem = "the counts are not inside the client's arena";
    return admitted;
  }
  admitted.counts = counts_;
  admitted.checked =
      check_entry(entry, {setup_.shape, setup_.size, submitter.rank, submitter.arena.bytes, tensor,
                          counts_, submitter.input, submitter.output});
  if (admitted.checked.problem != nullptr) return admitted;
  const plan::Plan& plan = *admitted.checked.plan;
  const ResolvedRecipe& declared = tensor != nullptr ? tensor->declared : kAnonymous;
  ResolvedRecipe resolved = declared;
  if (entry.recipe[0] != '\0') {
    admitted.checked.problem = resolve(entry, plan, tensor, resolved);
    admitted.checked.code = Errc::bad_recipe;
    if (admitted.checked.problem != nullptr) return admitted;
  }
  admitted.op.tensor = tensor;
  admitted.op.encoding = encoding_of(entry, plan, resolved, tensor);
  if (entry.encoded_by != 0) admitted.client = client_encoding_of(entry);

  wire::AnnounceBody& body = admitted.body;
  body.count = entry.count;
  body.kind = entry.kind;
  body.dtype = entry.dtype;
  body.reduction = entry.reduction;
  body.role = entry.role;
  body.memory = static_cast<std::uint8_t>(declared.announced_memory);
  body.alpha_bits = std::bit_cast<std::uint32_t>(declared.alpha);
  body.state_scale_bits =
      codec::needs_shift(declared.recipe) ? entry.state_scale_bits : std::uint32_t{0};
  if (tensor != nullptr && tensor->declared.one_lane) body.flags |= wire::kAnnounceOneLane;
  if (tensor != nullptr && tensor->exempt) body.flags |= wire::kAnnounceExempt;
  if (loses_without_memory(plan, resolved, entry)) body.flags |= wire::kAnnounceLossy;
  body.root = plan.has_root ? entry.root : 0;
  body.rank = submitter.rank;
  body.generation = tensor != nullptr ? tensor->generation : 0;
  if (!counts_.empty()) {
    body.counts_crc = std::max(wire::crc32c(std::as_bytes(std::span(counts_))), std::uint32_t{1});
  }
  admitted.checked.problem = objection_to_memory(plan, admitted.op, body.counts_crc);
  admitted.checked.code = admitted.checked.problem != nullptr ? Errc::bad_recipe : Errc::ok;
  return admitted;
}

bool OpAdmission::read_counts(const shm::SubmitEntry& entry, const Region& arena) {
  counts_.clear();
  if ((entry.flags & shm::kEntryHasCounts) == 0) return true;
  const plan::Plan* const plan = plan::find(entry.kind);
  const std::size_t directions = plan != nullptr && plan->has_pairs() ? 2 : 1;
  const std::size_t count = setup_.size * directions;
  const std::uint64_t bytes = count * sizeof(std::uint64_t);
  if (bytes > arena.bytes || entry.counts_offset > arena.bytes - bytes) return false;
  counts_.resize(count);
  std::memcpy(counts_.data(), arena.base + entry.counts_offset, bytes);
  return true;
}

const char* OpAdmission::resolve(const shm::SubmitEntry& entry, const plan::Plan& plan,
                                 const TensorState* tensor, ResolvedRecipe& resolved) const {
  codec::Recipe own;
  if (!setup_.recipe_texts->read(entry.recipe, own)) {
    return "the operation's recipe cannot be read";
  }
  if (!plan.takes_tensor && codec::has_memory(own)) {
    return "the operation takes no tensor that could have the recipe's memory; write none(...)";
  }
  const auto dtype = static_cast<DType>(entry.dtype);
  const RecipeTerms terms{
      .dtype = dtype,
      .role = tensor != nullptr ? tensor->role : Role::exact,
      .exempt = tensor != nullptr && tensor->exempt,
      .has_tuner = tensor != nullptr && tensor->tuning != nullptr,
      .nodes = setup_.shape.nodes(),
      .chunk_elements = shm::most_chunk_elements(setup_.shape.chunk_bytes, dtype)};
  const OwnRecipe made = resolve_own(own, resolved, terms);
  resolved = made.resolved;
  return made.problem;
}

bool OpAdmission::loses_without_memory(const plan::Plan& plan, const ResolvedRecipe& resolved,
                                       const shm::SubmitEntry& entry) const {
  const RecipeTerms terms{.dtype = static_cast<DType>(entry.dtype), .nodes = setup_.shape.nodes()};
  return plan.loses_without_memory && resolved.asked && codec::is_lossy(resolved.recipe) &&
         terms.may_compress();
}

void OpAdmission::Admitted::lose_nothing() noexcept {
  op.encoding.lossy = false;
  op.encoding.tuning = nullptr;
  body.flags &= static_cast<std::uint8_t>(~wire::kAnnounceLossy);
}

Refusal refusal_of(collective::GroupOps::SubmitResult result) noexcept {
  using Result = collective::GroupOps::SubmitResult;
  switch (result) {
    case Result::accepted:
      return {};
    case Result::too_many:
      return {Errc::would_block, "more operations than max_ops_in_flight"};
    case Result::duplicate:
      return {Errc::invalid_argument, "this use of the tensor has been submitted before"};
    case Result::released:
      return {Errc::cancelled,
              "the other ranks of this node have released the tensor: what they had not done by "
              "then has failed"};
  }
  return {};
}

OpRank OpAdmission::Admitted::rank(const shm::SubmitEntry& entry,
                                   const Submitter& submitter) const noexcept {
  const std::size_t element = dtype_bytes(static_cast<DType>(entry.dtype));
  const shm::BlockSlots* const slots = op.slots();
  OpRank rank;
  rank.ticket = entry.ticket;
  rank.extents = checked.extents;
  rank.input = {submitter.input, entry.input_offset,
                slots != nullptr ? slots->bytes() : rank.extents.input.count * element};
  rank.output = {submitter.output, entry.output_offset,
                 slots != nullptr ? slots->bytes() : rank.extents.output.count * element};
  rank.prescale = std::bit_cast<float>(entry.prescale_bits);
  rank.lanes = checked.lanes;
  return rank;
}

OpEncoding OpAdmission::encoding_of(const shm::SubmitEntry& entry, const plan::Plan& plan,
                                    const ResolvedRecipe& resolved,
                                    const TensorState* tensor) const {
  OpEncoding encoding;
  encoding.recipe = resolved.recipe;
  // Streams are kept for the chunks of an op that is cut as a whole, of what moves: a contribution
  // goes to another owner than the result, and nobody keeps the last one.
  if ((plan.parts != plan::Parts::whole || plan.reduces()) &&
      encoding.recipe.compressor == codec::Compressor::xordelta) {
    encoding.recipe.compressor = codec::Compressor::lossless;
  }
  encoding.state_scale = std::bit_cast<float>(entry.state_scale_bits);
  const auto reduction = static_cast<Reduction>(entry.reduction);
  const bool adds = plan.moves() || reduction == Reduction::sum || reduction == Reduction::average;
  const std::uint64_t bytes = entry.count * dtype_bytes(static_cast<DType>(entry.dtype));
  const bool worth_it = bytes != 0 && bytes >= setup_.lossy_min_bytes;
  // The tuner may take any of its candidates, as far as the op may have one.
  const bool may_be_tuned =
      tensor != nullptr && resolved.tuned && plan.is_tuned() && tensor->tuning->serves(plan.number);
  TensorTuning* const tuning = may_be_tuned ? tensor->tuning.get() : nullptr;
  // What moves and fits in its announcement goes with it unless it may lose.
  const bool fits = plan.moves() && bytes <= setup_.shape.eager_bytes;
  encoding.lossless = (tuning != nullptr || resolved.lossless) && worth_it && !fits;
  const bool chosen = tuning != nullptr || !resolved.tuned;
  encoding.lossy = tensor != nullptr && plan.may_lose_of(tensor->role) && resolved.lossy && adds &&
                   worth_it && chosen && (resolved.asked || !plan.loses_if_asked);
  // With counts ranks have different numbers of elements: what is worth it must be so for all.
  const bool has_counts = (entry.flags & shm::kEntryHasCounts) != 0;
  if (loses_without_memory(plan, resolved, entry) && (worth_it || has_counts)) {
    encoding.lossy = true;
  }
  if (encoding.lossless || encoding.lossy) encoding.tuning = tuning;
  return encoding;
}

}  // namespace tern::daemon
