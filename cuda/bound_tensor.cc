#include "cuda/bound_tensor.h"

#include "cuda/keep.h"
#include "cuda/last_error.h"

namespace tern::cuda {
namespace {

Result<tern_block_layout> layout_of(tern_tensor* tensor) {
  tern_block_layout layout = TERN_BLOCK_LAYOUT_INIT;
  if (const auto status = tern_tensor_get_block_layout(tensor, &layout); status != TERN_OK) {
    return tl::unexpected(error_of(status));
  }
  return layout;
}

}  // namespace

Result<std::unique_ptr<BoundTensor>> BoundTensor::create(const Place& place, tern_tensor* tensor,
                                                         bool& pin_failed) {
  pin_failed = false;
  const auto layout = layout_of(tensor);
  if (!layout) return tl::unexpected(layout.error());
  if (layout->dtype != TERN_F32) {
    return fail(Errc::unsupported,
                "kernels take tensors of f32: declare this one without client_blocks and copy "
                "elements through pinned memory of tern_alloc");
  }
  auto part = StatePart::of(tensor, layout->count);
  if (!part) return tl::unexpected(part.error());
  auto map = ChunkMap::of(*layout);
  if (!map) return tl::unexpected(map.error());
  const auto recipe = DeviceRecipe::next_of(*layout);
  if (!recipe) return tl::unexpected(recipe.error());
  std::unique_ptr<BoundTensor> made(new BoundTensor(place, tensor, std::move(*map)));
  Status done =
      keep(TensorSlots::create(place.device.driver, place.client, made->map_.bytes(), pin_failed),
           made->slots_);
  if (done) done = made->make_passes(*recipe, *layout, !part->floats().empty());
  if (done) done = made->fill_residual(*part);
  // Also after an error: what is given back must not be written to any more.
  const Status finished = place.stream.finish();
  if (!done) return tl::unexpected(done.error());
  if (!finished) return tl::unexpected(finished.error());
  return made;
}

Status BoundTensor::make_passes(const DeviceRecipe& recipe, const tern_block_layout& layout,
                                bool has_state) {
  const Device& device = place_.device;
  // A tensor that may lose nothing has none, whatever the tuner chooses for it.
  const bool is_tuned = layout.is_tuned != 0 && has_state;
  owes_ = is_tuned || recipe.has_residual();
  if (owes_ && map_.contributed_elements() != 0) {
    auto kept = keep(Residual::create(device, map_), residual_);
    if (!kept) return kept;
    if (is_tuned) owed_ = std::make_unique<Owed>(device, map_, *slots_, *residual_);
  }
  auto kept = keep(EncodePass::create({device, map_, *slots_, residual_.get(), owed_.get(),
                                       layout.most_block_bytes, layout.is_tuned != 0},
                                      recipe),
                   encode_pass_);
  if (!kept) return kept;
  kept = keep(DecodePass::create(device, map_, *slots_), decode_pass_);
  if (!kept) return kept;
  kept = keep(gpu::Stopwatch::create(device.driver), encode_watch_);
  if (!kept) return kept;
  return keep(gpu::Stopwatch::create(device.driver), decode_watch_);
}

Result<BoundTensor::NextUse> BoundTensor::prepare() {
  const auto layout = layout_of(tensor_);
  if (!layout) return tl::unexpected(layout.error());
  if (owed_ != nullptr) encode_pass_->change_recipe(*DeviceRecipe::next_of(*layout));
  return NextUse{layout->next_use, layout->raw_first};
}

Result<StatePart> BoundTensor::export_state() const {
  auto part = StatePart::of(tensor_, map_.count());
  if (!part || residual_ == nullptr || part->floats().empty()) return part;
  const Status taken = residual_->take(part->floats(), place_.stream.get());
  // The part must stay until nothing writes to it any more.
  const Status finished = place_.stream.finish();
  if (!taken) return tl::unexpected(taken.error());
  if (!finished) return tl::unexpected(finished.error());
  return part;
}

Status BoundTensor::hand_over() {
  encode_pass_.reset();
  decode_pass_.reset();
  slots_.reset();
  if (!owes_) return {};
  const auto part = export_state();
  if (!part) return tl::unexpected(part.error());
  const void* const bytes = part->bytes().data();
  const std::uint64_t count = part->bytes().size();
  const tern_status status = tern_tensor_import_state(tensor_, &bytes, &count, 1);
  return status == TERN_OK ? Status{} : tl::unexpected(error_of(status));
}

Status BoundTensor::read_residual() {
  if (residual_ == nullptr) return {};
  auto part = StatePart::of(tensor_, map_.count());
  if (!part) return tl::unexpected(part.error());
  const Status filled = fill_residual(*part);
  // The part must stay until nothing reads it any more.
  const Status finished = place_.stream.finish();
  return filled ? finished : filled;
}

Status BoundTensor::fill_residual(StatePart& part) {
  if (residual_ == nullptr) return {};
  if (part.floats().empty()) {
    return fail(Errc::state_mismatch, "the daemon's part of the state has no residual");
  }
  if (owed_ != nullptr) owed_->assume_all();
  return residual_->put(part.floats(), place_.stream.get());
}

HeldBytes BoundTensor::held() const noexcept {
  HeldBytes held{0, slots_->bytes()};
  if (residual_ != nullptr) held += residual_->held();
  held += encode_pass_->held();
  held += decode_pass_->held();
  return held;
}

}  // namespace tern::cuda
