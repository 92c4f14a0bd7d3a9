#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cuda/residual.h"
#include "cuda/tensor_slots.h"
#include "gpu/streams.h"

// Of a tensor whose recipe is another for each operation: which chunks' residual may hold
// something. A chunk's first block that loses nothing carries all of that.
namespace tern::cuda {

class Owed {
 public:
  // Requires: what is given outlives it.
  Owed(const Device& device, const ChunkMap& map, const TensorSlots& slots,
       const Residual& residual);

  bool holds(const ChunkPlace& chunk) const noexcept { return now_[chunk.number] != 0; }
  // The residual has come from elsewhere.
  void assume_all() { now_.assign(now_.size(), 1); }

  // ---- Of an operation. What it changes counts when it has succeeded. ----
  void begin() noexcept;
  void owe(const ChunkPlace& chunk) noexcept { next_[chunk.number] = 1; }
  // Adds what is owed to the elements that lie in the chunks' slots, by the processor: no block is
  // encoded for it. Where a sum would not be finite, the elements stay and it is owed still. Waits
  // for the stream, and allocates nothing. Requires: the operation's copy of the residual is made,
  // and the elements are there.
  Status pay_back(std::span<const ChunkPlace* const> chunks, float state_scale,
                  const gpu::OwnStream& stream);
  void commit() noexcept { now_.swap(next_); }

 private:
  using Chunks = std::span<const ChunkPlace* const>;

  // Those of the first chunks that have room in `floats_` together.
  std::size_t fit(Chunks chunks) const noexcept;
  Status fetch(Chunks chunks, const gpu::OwnStream& stream);
  void add(Chunks chunks, float state_scale);
  Status put_back(Chunks chunks, const gpu::OwnStream& stream) const;

  const Device& device_;
  const TensorSlots& slots_;
  const Residual& residual_;
  std::vector<std::uint8_t> now_;  // by chunk
  std::vector<std::uint8_t> next_;
  std::vector<float> floats_;  // the residual of some chunks, one behind the other
};

}  // namespace tern::cuda
