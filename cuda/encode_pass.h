#pragma once

#include <memory>
#include <vector>

#include "cuda/device_recipe.h"
#include "cuda/residual.h"
#include "cuda/tensor_slots.h"

// The way of a tensor's input into its slots. A chunk that this node owns goes as it is; another
// one as a block, which a kernel writes to the pinned slot, or raw.
namespace tern::cuda {

class EncodePass {
 public:
  struct Parts {
    const Device& device;
    const ChunkMap& map;
    const TensorSlots& slots;
    const Residual* residual;  // null: the recipe has none
  };
  // Requires: the parts outlive it.
  static Result<std::unique_ptr<EncodePass>> create(const Parts& parts, const DeviceRecipe& recipe,
                                                    std::uint64_t most_block_bytes);

  struct Input {
    gpu::DeviceAddress elements;
    float state_scale;
    std::uint64_t step;  // of the blocks' headers
    bool is_sum;         // or an average: else all goes raw
  };
  // Requires: what was enqueued before is done.
  Status enqueue(const Input& input, gpu::Stream stream);

  // When that is done: how many chunks are not finite, whose elements have to follow.
  std::size_t read_outcomes();
  // Enqueues these elements.
  Status lower(gpu::Stream stream) const;
  // When they are there too: the headers of all that goes raw.
  void write_raw_headers() const;

  // Whether the operation has worked on the copy of the residual.
  bool changes_residual() const noexcept {
    return parts_.residual != nullptr && input_.is_sum && !encoded_.empty();
  }

  HeldBytes held() const noexcept;

 private:
  EncodePass(const Parts& parts, DeviceRecipe recipe) : parts_(parts), recipe_(std::move(recipe)) {}

  bool has_room(const ChunkPlace& chunk, std::uint64_t most_block_bytes) const;
  codec::device::EncodeChunk order_for(const ChunkPlace& chunk, std::size_t number) const;
  Status lower_chunk(const ChunkPlace& chunk, gpu::Stream stream) const;

  Parts parts_;
  DeviceRecipe recipe_;
  KernelChoice kernel_{};
  Input input_{};
  std::vector<const ChunkPlace*> encoded_;     // by the kernel, of a sum
  std::vector<const ChunkPlace*> plain_;       // owned, without a header
  std::vector<const ChunkPlace*> too_long_;    // of a sum: a block might have no room
  std::vector<const ChunkPlace*> not_finite_;  // of the operation
  std::optional<Orders<codec::device::EncodeChunk>> orders_;       // if there is a kernel
  std::optional<Answers<codec::device::EncodeOutcome>> outcomes_;  // likewise
};

}  // namespace tern::cuda
