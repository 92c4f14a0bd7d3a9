#pragma once

#include <memory>
#include <vector>

#include "cuda/device_recipe.h"
#include "cuda/owed.h"
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
    Residual* residual;  // null: no recipe has one
    Owed* owed;          // null: the recipe stays
    std::uint64_t most_block_bytes;
    bool is_tuned;  // each operation says how it was encoded
  };
  // Requires: the parts outlive it.
  static Result<std::unique_ptr<EncodePass>> create(const Parts& parts, const DeviceRecipe& recipe);

  // Of the next operations. What cannot be encoded by it goes raw. Requires: nothing is in flight.
  void change_recipe(const DeviceRecipe& recipe);

  struct Input {
    gpu::DeviceAddress elements;
    float state_scale;
    std::uint64_t step;       // of the blocks' headers
    std::uint32_t raw_first;  // of the chunks of each other node so many go raw
    bool is_sum;              // or an average: else all goes raw
  };
  // Requires: what was enqueued before is done.
  Status enqueue(const Input& input, gpu::Stream stream);

  // When that is done: how many chunks are not finite, whose elements have to follow.
  std::size_t read_outcomes();
  // What raw blocks carry of earlier ones. Waits for the stream where there is something.
  Status pay_back(const gpu::OwnStream& stream);
  // Enqueues the elements of chunks that are not finite.
  Status lower(gpu::Stream stream) const;
  // When they are there too: the headers of all that goes raw.
  void write_raw_headers() const;
  // What the tuner is to know of the blocks; null: it has no say. `device_ns`: of enqueue(). Valid
  // until the next operation.
  const tern_encoded* told(std::uint64_t device_ns) noexcept;

  // The operation has succeeded.
  void commit() noexcept;

  HeldBytes held() const noexcept;

 private:
  EncodePass(const Parts& parts, const DeviceRecipe& recipe) : parts_(parts), recipe_(recipe) {}

  // Whether the operation works on the copy of the residual.
  bool changes_residual() const noexcept {
    return parts_.residual != nullptr && !(encoded_.empty() && paying_.empty());
  }
  bool has_room(const ChunkPlace& chunk) const;
  bool is_encoded(const ChunkPlace& chunk) const;
  codec::device::EncodeChunk order_for(const ChunkPlace& chunk, std::size_t number) const;
  Status choose_kernel();
  Status lower_chunk(const ChunkPlace& chunk, gpu::Stream stream) const;
  Status lower_all(const std::vector<const ChunkPlace*>& chunks, gpu::Stream stream) const;

  Parts parts_;
  DeviceRecipe recipe_;
  KernelChoice kernel_{};
  Input input_{};
  std::vector<const ChunkPlace*> plain_;  // owned, without a header
  // Of the operation: what the kernel encodes, and what goes raw; of these what carries more than
  // its elements; and of the first what has turned out not to be finite.
  std::vector<const ChunkPlace*> encoded_;
  std::vector<const ChunkPlace*> raw_;
  std::vector<const ChunkPlace*> paying_;
  std::vector<const ChunkPlace*> not_finite_;
  std::uint64_t paid_ns_ = 0;
  tern_encoded told_ = TERN_ENCODED_INIT;
  std::optional<Orders<codec::device::EncodeChunk>> orders_;       // if there may be a kernel
  std::optional<Answers<codec::device::EncodeOutcome>> outcomes_;  // likewise
};

}  // namespace tern::cuda
