#include "cuda/encode_pass.h"

#include <algorithm>
#include <chrono>

#include "codec/codec.h"

namespace tern::cuda {

using codec::device::EncodeChunk;
using codec::device::EncodeOutcome;

Result<std::unique_ptr<EncodePass>> EncodePass::create(const Parts& parts,
                                                       const DeviceRecipe& recipe) {
  std::unique_ptr<EncodePass> pass(new EncodePass(parts, recipe));
  std::size_t may_be_encoded = 0;
  for (const ChunkPlace& chunk : parts.map.chunks()) {
    if (!chunk.contributed) pass->plain_.push_back(&chunk);
    const bool may = parts.owed != nullptr || (recipe.encodes() && pass->has_room(chunk));
    if (chunk.contributed && may) ++may_be_encoded;
  }
  if (may_be_encoded == 0) return pass;
  // Where the recipe is another for each operation, one without a kernel goes raw.
  if (parts.owed != nullptr) {
    pass->change_recipe(recipe);
  } else if (auto chosen = pass->choose_kernel(); !chosen) {
    return tl::unexpected(chosen.error());
  }
  const gpu::Driver& driver = parts.device.driver;
  auto orders = Orders<EncodeChunk>::create(driver, may_be_encoded);
  if (!orders) return tl::unexpected(orders.error());
  pass->orders_.emplace(std::move(*orders));
  auto outcomes = Answers<EncodeOutcome>::create(driver, may_be_encoded);
  if (!outcomes) return tl::unexpected(outcomes.error());
  pass->outcomes_.emplace(std::move(*outcomes));
  return pass;
}

Status EncodePass::choose_kernel() {
  if (!recipe_.encodes()) return {};
  const gpu::Driver& driver = parts_.device.driver;
  auto kernel = recipe_.encoder(parts_.map.most_elements(),
                                static_cast<std::uint32_t>(driver.device().shared_bytes));
  if (!kernel) return tl::unexpected(kernel.error());
  kernel_ = *kernel;
  return {};
}

void EncodePass::change_recipe(const DeviceRecipe& recipe) {
  recipe_ = recipe;
  if (!choose_kernel()) recipe_ = DeviceRecipe();
}

bool EncodePass::has_room(const ChunkPlace& chunk) const {
  const std::size_t bytes =
      wire::kBlockHeaderBytes + codec::encode_bound(recipe_.recipe(), chunk.elements);
  return bytes <= std::min<std::uint64_t>(parts_.most_block_bytes, parts_.map.slot_bytes());
}

bool EncodePass::is_encoded(const ChunkPlace& chunk) const {
  return input_.is_sum && recipe_.encodes() && has_room(chunk) &&
         chunk.number / parts_.map.nodes() >= input_.raw_first;
}

EncodeChunk EncodePass::order_for(const ChunkPlace& chunk, std::size_t number) const {
  EncodeChunk order{};
  order.input = gpu::as_pointer<float>(input_.elements) + chunk.begin;
  order.residual = parts_.residual != nullptr ? parts_.residual->next(chunk) : nullptr;
  order.block = parts_.slots.block_on_device(chunk);
  order.outcome = outcomes_->device(number);
  order.stream_step = input_.step;
  order.elements = chunk.elements;
  order.state_scale = input_.state_scale;
  order.delivered = DType::f32;
  return order;
}

Status EncodePass::enqueue(const Input& input, gpu::Stream stream) {
  input_ = input;
  for (auto* const chunks : {&encoded_, &raw_, &paying_, &not_finite_}) chunks->clear();
  for (const ChunkPlace& chunk : parts_.map.chunks()) {
    if (!chunk.contributed) continue;
    const bool encodes = is_encoded(chunk);
    (encodes ? encoded_ : raw_).push_back(&chunk);
    const bool pays = !encodes && input.is_sum && parts_.owed != nullptr;
    if (pays && parts_.owed->holds(chunk)) paying_.push_back(&chunk);
  }
  if (auto lowered = lower_all(plain_, stream); !lowered) return lowered;
  if (auto lowered = lower_all(raw_, stream); !lowered) return lowered;
  if (changes_residual()) {
    if (auto copied = parts_.residual->begin(stream); !copied) return copied;
  }
  if (encoded_.empty()) return {};
  for (std::size_t i = 0; i < encoded_.size(); ++i) {
    orders_->host()[i] = order_for(*encoded_[i], i);
  }
  if (auto uploaded = orders_->upload(encoded_.size(), stream); !uploaded) return uploaded;
  const EncodeChunk* orders = orders_->device(0);
  void* parameters[] = {recipe_.stage(), static_cast<void*>(&orders)};
  return parts_.device.kernels.launch({kernel_.kernel, static_cast<std::uint32_t>(encoded_.size()),
                                       kernel_.shared_bytes, parameters},
                                      stream);
}

Status EncodePass::lower_all(const std::vector<const ChunkPlace*>& chunks,
                             gpu::Stream stream) const {
  for (const ChunkPlace* const chunk : chunks) {
    if (auto lowered = lower_chunk(*chunk, stream); !lowered) return lowered;
  }
  return {};
}

Status EncodePass::lower_chunk(const ChunkPlace& chunk, gpu::Stream stream) const {
  return gpu::copy_down(parts_.device.driver, parts_.slots.elements(chunk),
                        input_.elements + chunk.begin * sizeof(float), stream);
}

std::size_t EncodePass::read_outcomes() {
  if (parts_.owed != nullptr) parts_.owed->begin();
  for (std::size_t i = 0; i < encoded_.size(); ++i) {
    if (outcomes_->host()[i].nonfinite != 0) {
      not_finite_.push_back(encoded_[i]);
    } else if (parts_.owed != nullptr) {
      parts_.owed->owe(*encoded_[i]);
    }
  }
  return not_finite_.size();
}

Status EncodePass::pay_back(const gpu::OwnStream& stream) {
  paid_ns_ = 0;
  if (paying_.empty()) return {};
  const auto began = std::chrono::steady_clock::now();
  Status paid = parts_.owed->pay_back(paying_, input_.state_scale, stream);
  const auto took = std::chrono::steady_clock::now() - began;
  paid_ns_ = static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(took).count());
  return paid;
}

Status EncodePass::lower(gpu::Stream stream) const { return lower_all(not_finite_, stream); }

void EncodePass::write_raw_headers() const {
  const auto write = [this](const std::vector<const ChunkPlace*>& chunks, bool nonfinite) {
    for (const ChunkPlace* const chunk : chunks) {
      wire::write_block_header(
          codec::raw_block_header(DType::f32, chunk->elements, nonfinite, input_.step),
          std::span<std::byte, wire::kBlockHeaderBytes>(parts_.slots.block(*chunk),
                                                        wire::kBlockHeaderBytes));
    }
  };
  write(raw_, false);
  write(not_finite_, true);
}

const tern_encoded* EncodePass::told(std::uint64_t device_ns) noexcept {
  if (!parts_.is_tuned) return nullptr;
  told_ = TERN_ENCODED_INIT;
  // There is no kernel, or no chunk that would have room. A node without contributions has not
  // tried.
  const bool tried =
      input_.is_sum && input_.raw_first == 0 && parts_.map.contributed_elements() != 0;
  told_.all_raw = tried && encoded_.empty() ? 1 : 0;
  told_.encode_ns = device_ns + paid_ns_;
  for (std::size_t i = 0; i < encoded_.size(); ++i) {
    const EncodeOutcome& outcome = outcomes_->host()[i];
    if (outcome.nonfinite != 0) continue;
    told_.elements += encoded_[i]->elements;
    told_.energy += outcome.input_energy;
    told_.residual_energy += outcome.residual_energy;
  }
  return &told_;
}

void EncodePass::commit() noexcept {
  if (parts_.owed != nullptr) parts_.owed->commit();
  if (changes_residual()) parts_.residual->commit();
}

HeldBytes EncodePass::held() const noexcept {
  HeldBytes held;
  if (orders_) held += orders_->held();
  if (outcomes_) held += outcomes_->held();
  return held;
}

}  // namespace tern::cuda
