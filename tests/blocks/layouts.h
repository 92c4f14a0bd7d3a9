#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "blocks/layout.h"
#include "shm/block_slots.h"

namespace tern::blocks {

// Of `count` f32 between two nodes, of which this is the first and owns the even chunks.
inline Layout layout_of(std::uint64_t count, std::uint64_t chunk_elements,
                        tern_dtype dtype = TERN_F32) {
  const shm::BlockSlots slots{count, chunk_elements, dtype == TERN_F32 ? 4u : 2u};
  tern_block_layout layout = TERN_BLOCK_LAYOUT_INIT;
  layout.count = count;
  layout.chunk_elements = chunk_elements;
  layout.chunks = slots.slots();
  layout.slot_bytes = slots.slot_bytes();
  layout.most_block_bytes = slots.slot_bytes();
  layout.tensor = 5;
  layout.seed = 7;
  layout.nodes = 2;
  layout.dtype = dtype;
  return Layout(layout);
}

inline std::vector<float> drawn_floats(std::uint64_t count, std::uint32_t seed = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

inline std::span<const std::byte> bytes_of(const std::vector<float>& values) {
  return std::as_bytes(std::span(values));
}

}  // namespace tern::blocks
