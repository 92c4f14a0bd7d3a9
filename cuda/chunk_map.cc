#include "cuda/chunk_map.h"

#include <algorithm>

#include "wire/block.h"

namespace tern::cuda {

Result<ChunkMap> ChunkMap::of(const tern_block_layout& layout) {
  const std::uint64_t most = std::min(layout.chunk_elements, layout.count);
  if (most == 0 || most > wire::kMaxBlockElements || layout.nodes == 0 ||
      layout.slot_bytes < wire::kBlockHeaderBytes + most * sizeof(float)) {
    return fail(Errc::unsupported, "the tensor's slots are not those of f32");
  }
  // Kernels read and write 16 bytes at a time.
  if (layout.chunks > 1 && layout.chunk_elements % 4 != 0) {
    return fail(Errc::unsupported, "a chunk has " + std::to_string(layout.chunk_elements) +
                                       " elements, which is no multiple of 4: give ternd a "
                                       "chunk_bytes that is a multiple of 16");
  }
  ChunkMap map;
  map.count_ = layout.count;
  map.slot_bytes_ = layout.slot_bytes;
  map.most_elements_ = static_cast<std::uint32_t>(most);
  map.nodes_ = layout.nodes;
  for (std::uint64_t c = 0; c < layout.chunks; ++c) {
    const std::uint64_t begin = c * layout.chunk_elements;
    const bool owned =
        layout.travels_whole == 0 && (layout.first_owner + c) % layout.nodes == layout.node;
    const auto elements =
        static_cast<std::uint32_t>(std::min(layout.chunk_elements, layout.count - begin));
    map.chunks_.push_back({begin, c * layout.slot_bytes, map.contributed_elements_, elements,
                           static_cast<std::uint32_t>(c), !owned});
    if (owned) continue;
    ++map.contributed_chunks_;
    map.contributed_elements_ += elements;
  }
  return map;
}

}  // namespace tern::cuda
