#pragma once

#include <memory>

#include "client_lib/include/tern/tern.h"
#include "cuda/chunk_map.h"
#include "gpu/memory.h"
#include "wire/block.h"

// The slots of a tensor: memory of the client's arena, on whole pages and pinned.
namespace tern::cuda {

class TensorSlots {
 public:
  // `pin_failed` tells whether that was the cause. Requires: driver and client outlive it.
  static Result<std::unique_ptr<TensorSlots>> create(const gpu::Driver& driver, tern_client* client,
                                                     std::size_t bytes, bool& pin_failed);
  ~TensorSlots();
  TensorSlots(const TensorSlots&) = delete;
  TensorSlots& operator=(const TensorSlots&) = delete;

  void* memory() const noexcept { return slots_.data(); }
  std::size_t bytes() const noexcept { return slots_.size(); }

  std::byte* block(const ChunkPlace& chunk) const noexcept { return slots_.data() + chunk.slot; }
  std::byte* block_on_device(const ChunkPlace& chunk) const noexcept {
    return gpu::as_pointer<std::byte>(range_->address_of(block(chunk)));
  }
  // The chunk's elements, of a raw block or as they are.
  std::span<std::byte> elements(const ChunkPlace& chunk) const noexcept {
    return {block(chunk) + wire::kBlockHeaderBytes, chunk.elements * sizeof(float)};
  }

 private:
  explicit TensorSlots(tern_client* client) noexcept : client_(client) {}

  tern_client* client_;
  void* allocation_ = nullptr;
  std::span<std::byte> slots_;
  std::unique_ptr<gpu::PinnedRange> range_;
};

}  // namespace tern::cuda
