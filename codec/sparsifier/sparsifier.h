#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "codec/sparsifier/params.h"

// Which elements of a chunk travel, the stage before the quantizer. Owns no memory, allocates
// nothing and keeps to its spans.
//
// A sparsifier writes a `section`, from which a reader learns how many elements were kept and
// which; it ends where its own bytes say. The section of randk and blocksparse is a key: the
// indices are drawn again by the reader and never sent.
namespace tern::codec::sparsifier {

// Upper limits for a chunk of that many elements.
std::size_t section_bound(const Params& params, std::size_t elements) noexcept;
std::size_t kept_bound(const Params& params, std::size_t elements) noexcept;

// Gathers what is kept. Never keeps nothing of a chunk that is not empty.
Selection select(const Request& request) noexcept;

// Reads a foreign section, and writes where the kept elements belong, ascending, to `positions`
// (room for `view.elements`). False: it is not a section of that kind.
bool read_section(const SectionView& view, std::uint32_t* positions, Selection& selection) noexcept;

// randk, blocksparse: E||S(x) - x||^2 <= omega ||x||^2 for the unbiased form. Negative for topk.
double omega(const Params& params, std::size_t elements) noexcept;

}  // namespace tern::codec::sparsifier
