#include "client_lib/entry.h"

#include <bit>

namespace tern::client_lib {
namespace {

void say_encoding(const tern_encoded& encoded, const shm::EncodedBy& told,
                  shm::SubmitEntry& entry) noexcept {
  entry.encoded_by = (encoded.all_raw != 0 ? shm::EncodedBy{} : told).packed();
  entry.encoded_elements = encoded.elements;
  entry.encoded_energy_bits = std::bit_cast<std::uint64_t>(encoded.energy);
  entry.encoded_residual_bits = std::bit_cast<std::uint64_t>(encoded.residual_energy);
  entry.encoded_ns = encoded.encode_ns;
}

}  // namespace

shm::SubmitEntry entry_of(const OpRequest& request, const Op& op, std::uint64_t ticket) noexcept {
  const TensorState* const tensor = op.tensor.get();
  shm::SubmitEntry entry{};
  entry.ticket = ticket;
  entry.kind = request.plan->number;
  entry.dtype = static_cast<std::uint8_t>(request.dtype);
  entry.reduction = static_cast<std::uint8_t>(request.reduction);
  entry.role = static_cast<std::uint8_t>(tensor != nullptr ? tensor->role : Role::exact);
  entry.group = op.group->number;
  entry.tensor = tensor != nullptr ? tensor->id : 0;
  entry.sequence = op.sequence;
  entry.count = request.count;
  if (op.output_bytes != 0) {
    entry.output_region = entry.input_region = op.output_at.region;
    entry.output_offset = entry.input_offset = op.output_at.offset;
  }
  if (op.input_bytes != 0) {
    entry.input_region = op.input_at.region;
    entry.input_offset = op.input_at.offset;
  }
  if (request.has_blocks()) {
    entry.flags |= shm::kEntryHasBlocks;
    if (tensor->blocks->is_tuned) say_encoding(request.encoded, tensor->told_by, entry);
  }
  if (op.counts_copy != kNoOffset) {
    entry.flags |= shm::kEntryHasCounts;
    entry.counts_offset = op.counts_copy;
  }
  if (op.progress.exists()) {
    entry.flags |= op.progress_flags;
    entry.progress_offset = op.progress_copy;
    entry.progress_records = op.progress.shape().records;
  }
  entry.root = request.root;
  const std::int32_t own_priority = tensor != nullptr ? tensor->priority : 0;
  entry.priority = request.priority != 0 ? request.priority : own_priority;
  entry.prescale_bits = std::bit_cast<std::uint32_t>(request.prescale);
  entry.state_scale_bits = std::bit_cast<std::uint32_t>(request.state_scale);
  request.recipe.copy(entry.recipe, sizeof entry.recipe - 1);
  return entry;
}

}  // namespace tern::client_lib
