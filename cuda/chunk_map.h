#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "client_lib/include/tern/tern.h"

// Where each chunk of a tensor lies: in its elements, in its slots, and in the residual.
namespace tern::cuda {

struct ChunkPlace {
  std::uint64_t begin;     // element
  std::uint64_t slot;      // bytes before its slot
  std::uint64_t residual;  // contributed: elements before its own in the residual
  std::uint32_t elements;
  std::uint32_t number;
  bool contributed;  // its input is a block: another node owns it, or none does
};

class ChunkMap {
 public:
  static Result<ChunkMap> of(const tern_block_layout& layout);

  std::span<const ChunkPlace> chunks() const noexcept { return chunks_; }
  std::uint64_t contributed_chunks() const noexcept { return contributed_chunks_; }
  std::uint64_t contributed_elements() const noexcept { return contributed_elements_; }
  std::uint32_t nodes() const noexcept { return nodes_; }  // of the group
  std::uint64_t count() const noexcept { return count_; }
  std::uint32_t most_elements() const noexcept { return most_elements_; }  // of a chunk
  std::uint64_t slot_bytes() const noexcept { return slot_bytes_; }        // of each
  std::uint64_t bytes() const noexcept { return slot_bytes_ * chunks_.size(); }

 private:
  ChunkMap() = default;

  std::vector<ChunkPlace> chunks_;
  std::uint64_t contributed_chunks_ = 0;
  std::uint64_t contributed_elements_ = 0;
  std::uint64_t count_ = 0;
  std::uint64_t slot_bytes_ = 0;
  std::uint32_t most_elements_ = 0;
  std::uint32_t nodes_ = 1;
};

}  // namespace tern::cuda
