#pragma once

// Elements of sends as blocks, and back: a piece of a send that writes out a recipe is a block. No
// codec state is kept from one piece to the next.

#include <cstddef>
#include <cstdint>
#include <span>

#include "codec/recipe.h"
#include "collective/passing.h"
#include "daemon/lane/lane_resources.h"

namespace tern::daemon {

class PassBlocks {
 public:
  // `seed` of the group's random draws.
  explicit PassBlocks(std::uint64_t seed) : seed_(seed) {}

  struct Piece {
    const collective::Envelope& envelope;  // of the send
    std::uint64_t offset = 0;              // in bytes of its elements
    std::span<const std::byte>
        elements;  // at most a chunk; their owner may write to them meanwhile
  };
  // Writes the piece's block to `out`, which has room for the longest of a chunk, and says how long
  // it is. Without a recipe, and where a value is not finite, the elements travel as they are.
  std::size_t encode(LaneResources& lane, const Piece& piece, const codec::Recipe* recipe,
                     std::span<std::byte> out) const;

  // Whether recipes lose values of such a type.
  static bool takes(DType type) noexcept;

  // How many bytes of elements have come, or what is wrong with the block, which is foreign.
  struct Decoded {
    std::uint64_t bytes = 0;
    const char* problem = nullptr;
  };
  // To the beginning of `room`, which has at most a chunk. REQUIRES: takes(type).
  static Decoded decode(LaneResources& lane, std::span<const std::byte> block, DType type,
                        std::span<std::byte> room);

 private:
  std::uint64_t seed_;
};

}  // namespace tern::daemon
