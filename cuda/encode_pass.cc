#include "cuda/encode_pass.h"

#include <algorithm>

#include "codec/codec.h"

namespace tern::cuda {

using codec::device::EncodeChunk;
using codec::device::EncodeOutcome;

Result<std::unique_ptr<EncodePass>> EncodePass::create(const Parts& parts,
                                                       const DeviceRecipe& recipe,
                                                       std::uint64_t most_block_bytes) {
  std::unique_ptr<EncodePass> pass(new EncodePass(parts, recipe));
  for (const ChunkPlace& chunk : parts.map.chunks()) {
    if (!chunk.contributed) {
      pass->plain_.push_back(&chunk);
    } else if (recipe.encodes() && pass->has_room(chunk, most_block_bytes)) {
      pass->encoded_.push_back(&chunk);
    } else {
      pass->too_long_.push_back(&chunk);
    }
  }
  if (pass->encoded_.empty()) return pass;
  const gpu::Driver& driver = parts.device.driver;
  auto kernel = recipe.encoder(parts.map.most_elements(),
                               static_cast<std::uint32_t>(driver.device().shared_bytes));
  if (!kernel) return tl::unexpected(kernel.error());
  pass->kernel_ = *kernel;
  auto orders = Orders<EncodeChunk>::create(driver, pass->encoded_.size());
  if (!orders) return tl::unexpected(orders.error());
  pass->orders_.emplace(std::move(*orders));
  auto outcomes = Answers<EncodeOutcome>::create(driver, pass->encoded_.size());
  if (!outcomes) return tl::unexpected(outcomes.error());
  pass->outcomes_.emplace(std::move(*outcomes));
  return pass;
}

bool EncodePass::has_room(const ChunkPlace& chunk, std::uint64_t most_block_bytes) const {
  const std::size_t bytes =
      wire::kBlockHeaderBytes + codec::encode_bound(recipe_.recipe(), chunk.elements);
  return bytes <= std::min<std::uint64_t>(most_block_bytes, parts_.map.slot_bytes());
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
  not_finite_.clear();
  const auto lower_all = [&](const std::vector<const ChunkPlace*>& chunks) -> Status {
    for (const ChunkPlace* const chunk : chunks) {
      if (auto lowered = lower_chunk(*chunk, stream); !lowered) return lowered;
    }
    return {};
  };
  if (auto lowered = lower_all(plain_); !lowered) return lowered;
  if (auto lowered = lower_all(too_long_); !lowered) return lowered;
  if (!input.is_sum) return lower_all(encoded_);
  if (encoded_.empty()) return {};
  if (parts_.residual != nullptr) {
    if (auto copied = parts_.residual->begin(stream); !copied) return copied;
  }
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

Status EncodePass::lower_chunk(const ChunkPlace& chunk, gpu::Stream stream) const {
  return gpu::copy_down(parts_.device.driver, parts_.slots.elements(chunk),
                        input_.elements + chunk.begin * sizeof(float), stream);
}

std::size_t EncodePass::read_outcomes() {
  if (!input_.is_sum) return 0;
  for (std::size_t i = 0; i < encoded_.size(); ++i) {
    if (outcomes_->host()[i].nonfinite != 0) not_finite_.push_back(encoded_[i]);
  }
  return not_finite_.size();
}

Status EncodePass::lower(gpu::Stream stream) const {
  for (const ChunkPlace* const chunk : not_finite_) {
    if (auto lowered = lower_chunk(*chunk, stream); !lowered) return lowered;
  }
  return {};
}

void EncodePass::write_raw_headers() const {
  const auto write = [this](const std::vector<const ChunkPlace*>& chunks, bool nonfinite) {
    for (const ChunkPlace* const chunk : chunks) {
      wire::write_block_header(
          codec::raw_block_header(DType::f32, chunk->elements, nonfinite, input_.step),
          std::span<std::byte, wire::kBlockHeaderBytes>(parts_.slots.block(*chunk),
                                                        wire::kBlockHeaderBytes));
    }
  };
  write(too_long_, false);
  write(not_finite_, true);
  if (!input_.is_sum) write(encoded_, false);
}

HeldBytes EncodePass::held() const noexcept {
  HeldBytes held;
  if (orders_) held += orders_->held();
  if (outcomes_) held += outcomes_->held();
  return held;
}

}  // namespace tern::cuda
