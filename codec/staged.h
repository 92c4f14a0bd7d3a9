#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "codec/coding.h"
#include "codec/quantizer/quantizer.h"
#include "codec/recipe.h"
#include "codec/sparsifier/sparsifier.h"
#include "codec/workspace.h"
#include "wire/block.h"

// Recipes that are put together from stages, and all recipes under diana and ef21. The payload is
//   section | length of the body (u32, 3lc only) | side | body
// where the section is the sparsifier's, the body is the quantizer's codes, and the entropy coder
// shortens the body alone. Private to codec/.
namespace tern::codec {

std::size_t staged_bound(const Recipe& recipe, std::size_t elements) noexcept;

EncodeResult staged_encode(const Recipe& recipe, const EncodeRequest& request, const BlockRoom& out,
                           Workspace& workspace) noexcept;

// Requires: check_block_header(block.header) == none, and both spans as long as the header says.
DecodeStatus staged_decode(const BlockView& block, std::span<float> out, bool add,
                           Workspace& workspace) noexcept;

// What both directions need to know of a payload; the quantizer's parameters as a block carries
// them.
struct StagedBody {
  quantizer::Params params;
  std::size_t kept = 0;
  quantizer::Sizes sizes;
};

// Pieces of about this many elements: three arrays of them stay in the first-level cache from one
// step to the next.
inline constexpr std::size_t kPieceElements = 1024;

// Calls visit(begin, count, side, body) for each piece, or once if the quantizer needs the whole;
// stops at the first that returns false.
template <typename Byte, typename Visit>
bool for_each_piece(const StagedBody& body, Byte* side, Byte* bytes, Visit visit) noexcept {
  const std::size_t unit = quantizer::piece_elements(body.params);
  if (unit == 0) return visit(std::size_t{0}, body.kept, side, bytes);
  const std::size_t piece = (kPieceElements + unit - 1) / unit * unit;
  for (std::size_t begin = 0; begin < body.kept; begin += piece) {
    const std::size_t count = body.kept - begin < piece ? body.kept - begin : piece;
    const quantizer::Sizes before = quantizer::sizes(body.params, begin);
    if (!visit(begin, count, side + before.side, bytes + before.body)) return false;
  }
  return true;
}

}  // namespace tern::codec
