#pragma once

#include <memory>
#include <vector>

#include "codec/workspace.h"
#include "cuda/device_recipe.h"
#include "cuda/parameters.h"
#include "cuda/tensor_slots.h"

// The way of result blocks out of a tensor's slots into device memory. Blocks may be of any codec:
// a kernel reads what it can over the bus, elements are copied, the processor decodes the rest.
// What is in a slot is foreign, and nothing of it is believed before it was checked.
namespace tern::cuda {

class DecodePass {
 public:
  // Requires: all of it outlives the pass.
  static Result<std::unique_ptr<DecodePass>> create(const Device& device, const ChunkMap& map,
                                                    const TensorSlots& slots);

  // After an error something may be enqueued all the same. Requires: what was enqueued before is
  // done, and the slots hold results.
  Status enqueue(gpu::DeviceAddress output, codec::Workspace& workspace, gpu::Stream stream);
  // When that is done: whether all payloads made sense. If not, the output is partly written.
  Status verdict() const;
  // Chunks that the processor has decoded.
  std::uint64_t processor_blocks() const noexcept { return decoded_.size(); }

  HeldBytes held() const noexcept;

 private:
  using PayloadView = codec::device::PayloadView;
  using DecodeChunk = codec::device::DecodeChunk;

  struct Work {
    const ChunkPlace* chunk;
    gpu::Kernel kernel;
    wire::BlockHeader header;
  };

  DecodePass(const Device& device, const ChunkMap& map, const TensorSlots& slots)
      : device_(device), map_(map), slots_(slots) {}

  Status sort_out(const ChunkPlace& chunk);
  Status copy_elements(const ChunkPlace& chunk);
  Status decode_here(const ChunkPlace& chunk, const wire::BlockHeader& header);
  bool fits(const Work& work) const noexcept;
  Status launch();
  Status launch_kernel(std::size_t first, std::size_t count);
  gpu::DeviceAddress output_of(const ChunkPlace& chunk) const noexcept {
    return output_ + chunk.begin * sizeof(float);
  }

  const Device& device_;
  const ChunkMap& map_;
  const TensorSlots& slots_;
  std::optional<Orders<DecodeChunk>> chunks_;
  std::optional<Orders<PayloadView>> views_;
  std::optional<Answers<std::uint32_t>> statuses_;
  // Of the operation.
  gpu::DeviceAddress output_ = 0;
  gpu::Stream stream_ = nullptr;
  codec::Workspace* workspace_ = nullptr;
  std::vector<Work> work_;                   // for kernels, by kernel
  std::vector<std::vector<float>> decoded_;  // by the processor
};

}  // namespace tern::cuda
