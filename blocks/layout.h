#pragma once

// Where the blocks of a tensor lie, and which chunks are whose: what tern_tensor_get_block_layout
// says, in the words of this folder.

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/dtype.h"
#include "client_lib/include/tern/tern.h"
#include "wire/block.h"

namespace tern::blocks {

struct Chunk {
  std::uint64_t number = 0;
  std::uint64_t begin = 0;
  std::uint32_t elements = 0;
};

class Layout {
 public:
  explicit Layout(const tern_block_layout& layout) noexcept : layout_(layout) {}

  DType dtype() const noexcept { return static_cast<DType>(layout_.dtype); }
  const tern_block_layout& said() const noexcept { return layout_; }
  std::uint64_t count() const noexcept { return layout_.count; }
  std::uint64_t chunks() const noexcept { return layout_.chunks; }
  // The recipe is another for each operation.
  bool is_tuned() const noexcept { return layout_.is_tuned != 0; }
  std::uint64_t bytes() const noexcept { return layout_.chunks * layout_.slot_bytes; }
  Chunk chunk(std::uint64_t number) const noexcept {
    const std::uint64_t begin = number * layout_.chunk_elements;
    return {number, begin,
            static_cast<std::uint32_t>(std::min(layout_.chunk_elements, layout_.count - begin))};
  }
  // This node adds what others contribute to it, and its elements are not encoded here.
  bool owns(const Chunk& chunk) const noexcept {
    return layout_.travels_whole == 0 &&
           (layout_.first_owner + chunk.number) % layout_.nodes == layout_.node;
  }
  std::uint64_t slot_offset(const Chunk& chunk) const noexcept {
    return chunk.number * layout_.slot_bytes;
  }
  std::uint64_t payload_room() const noexcept {
    return layout_.slot_bytes - wire::kBlockHeaderBytes;
  }
  std::uint64_t input_offset(const Chunk& chunk) const noexcept {
    return chunk.begin * dtype_bytes(dtype());
  }
  std::uint64_t input_bytes(const Chunk& chunk) const noexcept {
    return chunk.elements * dtype_bytes(dtype());
  }

 private:
  tern_block_layout layout_;
};

}  // namespace tern::blocks
