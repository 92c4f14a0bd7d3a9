#pragma once

#include <cstdint>

namespace tern::collective {

inline constexpr std::uint32_t kMaxNodes = 64;  // sets of nodes and of local ranks are 64-bit masks
inline constexpr std::uint32_t kMaxLocalRanks = 64;

using OpId = std::uint32_t;     // slot of an op
using ChunkId = std::uint32_t;  // slot of a chunk that this node owns and has granted

inline constexpr std::uint32_t kNoSlot = 0xffffffff;  // no op, chunk, index or node
inline constexpr std::uint32_t kNoRank = 0xffffffff;  // as the wire has it

}  // namespace tern::collective
