#include "blocks/tensor_blocks.h"

#include <chrono>
#include <string>
#include <utility>

#include "codec/recipe.h"
#include "codec/workspace.h"

namespace tern::blocks {
namespace {

Status status_of(tern_status status) {
  if (status == TERN_OK) return {};
  return fail(static_cast<Errc>(status), tern_error_detail());
}

Result<codec::Recipe> recipe_of(const tern_block_layout& said) {
  const auto recipe = codec::parse_recipe(said.recipe);
  if (recipe) return *recipe;
  return fail(Errc::bad_recipe, std::string("ternd says the recipe ") + said.recipe +
                                    ", which this libtern_blocks does not know: use that of "
                                    "ternd's version");
}

// Much address space, of which a thread needs one.
codec::Workspace& workspace() {
  thread_local codec::Workspace workspace;
  return workspace;
}

}  // namespace

Result<std::unique_ptr<TensorBlocks>> TensorBlocks::create(tern_client* client, tern_group* group,
                                                           tern_tensor* tensor) {
  tern_block_layout said = TERN_BLOCK_LAYOUT_INIT;
  if (Status asked = status_of(tern_tensor_get_block_layout(tensor, &said)); !asked) {
    return tl::unexpected(asked.error());
  }
  const auto recipe = recipe_of(said);
  if (!recipe) return tl::unexpected(recipe.error());
  std::unique_ptr<TensorBlocks> blocks(
      new TensorBlocks({client, group, tensor}, Layout(said), *recipe));
  // The state passes through the arena, in room that the slots then have.
  if (Status begun = blocks->take_state(); !begun) return tl::unexpected(begun.error());
  const std::uint64_t bytes = blocks->layout_.bytes();
  void* memory = nullptr;
  if (Status taken = status_of(tern_alloc(client, bytes, &memory)); !taken) {
    return tl::unexpected(taken.error());
  }
  blocks->slots_ = {static_cast<std::byte*>(memory), bytes};
  return blocks;
}

TensorBlocks::~TensorBlocks() { give_back(); }

void TensorBlocks::give_back() noexcept {
  if (is_under_way()) {
    (void)tern_cancel(handles_.client, ticket_);
    const bool sent = tern_wait(handles_.client, ticket_, TERN_FOREVER) == TERN_OK;
    ticket_ = 0;
    if (!sent) contributions_.take_back();
  }
  if (!slots_.empty()) (void)tern_free(handles_.client, slots_.data());
  slots_ = {};
}

Status TensorBlocks::release() {
  give_back();
  if (!contributions_.has_residual()) return {};
  const auto part = export_state();
  if (!part) return tl::unexpected(part.error());
  const void* const bytes = part->bytes().data();
  const std::uint64_t count = part->bytes().size();
  return status_of(tern_tensor_import_state(handles_.tensor, &bytes, &count, 1));
}

Status TensorBlocks::check(const Operation& operation) const {
  if (is_under_way()) return fail(Errc::would_block, "an operation on the tensor is under way");
  if (operation.input == nullptr || operation.output == nullptr) {
    return fail(Errc::invalid_argument, "input or output is NULL");
  }
  const bool scales = operation.prescale != 1.0f;
  if (scales && layout_.dtype() != DType::f32) {
    return fail(Errc::invalid_argument, "a prescale of blocks is for f32: scale the input first");
  }
  return {};
}

Status TensorBlocks::all_reduce(const Operation& operation) {
  if (Status checked = check(operation); !checked) return checked;
  tern_block_layout said = TERN_BLOCK_LAYOUT_INIT;
  if (Status asked = status_of(tern_tensor_get_block_layout(handles_.tensor, &said)); !asked) {
    return asked;
  }
  tern_encoded encoded = TERN_ENCODED_INIT;
  if (layout_.is_tuned()) {
    // One of a newer ternd may be unknown here.
    const auto recipe = codec::parse_recipe(said.recipe);
    encoded.all_raw = recipe ? 0 : 1;
    contributions_.change_recipe(recipe.value_or(codec::Recipe{}));
  }
  const std::uint64_t bytes = layout_.count() * dtype_bytes(layout_.dtype());
  const auto began = std::chrono::steady_clock::now();
  const Lost lost = contributions_.encode({operation.input, bytes},
                                          {operation.reduction, operation.prescale,
                                           operation.state_scale, said.next_use, said.raw_first},
                                          slots_, workspace());
  const auto took = std::chrono::steady_clock::now() - began;
  encoded.elements = lost.elements;
  encoded.energy = lost.energy;
  encoded.residual_energy = lost.residual_energy;
  encoded.encode_ns = static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(took).count());
  tern_op op = TERN_OP_INIT;
  // An older libtern has no such field.
  if (layout_.is_tuned()) op.encoded = &encoded;
  op.tensor = handles_.tensor;
  op.input = op.output = slots_.data();
  op.reduction = static_cast<tern_reduction>(operation.reduction);
  op.priority = operation.priority;
  op.state_scale = operation.state_scale;
  output_ = operation.output;
  Status submitted = status_of(tern_all_reduce(handles_.group, &op, &ticket_));
  if (!submitted) {
    ticket_ = 0;
    contributions_.take_back();
  }
  return submitted;
}

Status TensorBlocks::wait(std::int64_t timeout_ms) {
  if (!is_under_way()) return fail(Errc::unknown_ticket, "no operation is under way");
  tern_status status = tern_wait(handles_.client, ticket_, timeout_ms);
  Status ended = status_of(status);
  // The call's own failure, or the operation's: then its ticket is gone.
  if (status == TERN_ERR_OUT_OF_MEMORY || status == TERN_ERR_INTERNAL) {
    status = tern_test(handles_.client, ticket_);
    if (status != TERN_ERR_UNKNOWN_TICKET) ended = status_of(status);
  }
  if (status == TERN_ERR_TIMEOUT || status == TERN_ERR_FORKED) return ended;
  ticket_ = 0;
  if (!ended) {
    contributions_.take_back();
    return ended;
  }
  const std::uint64_t bytes = layout_.count() * dtype_bytes(layout_.dtype());
  return results_.decode(slots_, {output_, bytes}, workspace());
}

Status TensorBlocks::take_state() {
  if (!layout_.is_tuned() && !contributions_.has_residual()) return {};
  const auto part = StatePart::of_daemon(handles_.tensor);
  if (!part) return tl::unexpected(part.error());
  part->give(contributions_);
  return {};
}

Result<StatePart> TensorBlocks::export_state() {
  if (is_under_way()) return fail(Errc::would_block, "an operation on the tensor is under way");
  auto part = StatePart::of_daemon(handles_.tensor);
  if (part) part->take(contributions_);
  return part;
}

Status TensorBlocks::import_state(std::span<const void* const> parts,
                                  std::span<const std::uint64_t> bytes) {
  if (is_under_way()) return fail(Errc::would_block, "an operation on the tensor is under way");
  const Status imported = status_of(tern_tensor_import_state(
      handles_.tensor, parts.data(), bytes.data(), static_cast<std::uint32_t>(parts.size())));
  return imported ? take_state() : imported;
}

}  // namespace tern::blocks
