#pragma once

#include <numeric>

#include "codec/quantizer/implementation.h"

// What the quantizers with one scale per block have in common. Private to codec/quantizer/.
namespace tern::codec::quantizer {

// The shortest piece that ends where a block does, and where 64 codes of any width end on a byte.
constexpr std::size_t block_piece(std::uint32_t block) noexcept {
  return block == 0 ? 0 : std::lcm(std::size_t{64}, std::size_t{block});
}

// Blocks of packed codes begin at a byte, whatever the width of a code.
constexpr bool valid_block(std::uint32_t block) noexcept { return block % 32 == 0; }

}  // namespace tern::codec::quantizer
