#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/block.h"

// Which elements of a chunk travel, the stage before the quantizer. Owns no memory, allocates
// nothing and keeps to its spans.
//
// A sparsifier writes a `section`, from which a reader learns how many elements were kept and
// which; it ends where its own bytes say. The section of randk and blocksparse is a key: the
// indices are drawn again by the reader and never sent.
namespace tern::codec::sparsifier {

using Kind = wire::SparsifierId;

struct Params {
  Kind kind = Kind::none;
  bool exact = false;       // topk: exactly k elements, instead of a threshold found by sampling
  std::uint32_t block = 1;  // blocksparse: consecutive elements that are kept or dropped together
  std::uint32_t count = 0;  // k: elements (or blocks) to keep of each chunk; 0: share says it
  float share = 0.0f;       // 0 < share <= 1, of the elements (or blocks)

  friend bool operator==(const Params&, const Params&) = default;
};

// Upper limits for a chunk of that many elements.
std::size_t section_bound(const Params& params, std::size_t elements) noexcept;
std::size_t kept_bound(const Params& params, std::size_t elements) noexcept;

struct Selection {
  std::size_t kept = 0;
  std::size_t section_bytes = 0;
};

// Gathers what is kept into `kept` (room for kept_bound). `unbiased`: randk and blocksparse
// multiply what they keep by the inverse of its probability, so that the expectation is the input;
// topk has no such form. Requires finite values that nobody else writes to; `section` has
// section_bound bytes and `positions` kept_bound numbers (scratch). Never keeps nothing of a chunk
// that is not empty.
Selection select(const Params& params, std::span<const float> values, std::uint64_t key,
                 bool unbiased, std::byte* section, float* kept, std::uint32_t* positions) noexcept;

// Reads a foreign section of a chunk of `elements` from the beginning of `payload`, and writes
// where the kept elements belong, ascending, to `positions` (room for `elements`). False: it is not
// a section of that kind.
bool read_section(Kind kind, std::span<const std::byte> payload, std::size_t elements,
                  std::uint32_t* positions, Selection& selection) noexcept;

// randk, blocksparse: E||S(x) - x||^2 <= omega ||x||^2 for the unbiased form. Negative for topk.
double omega(const Params& params, std::size_t elements) noexcept;

}  // namespace tern::codec::sparsifier
