#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/block.h"

// What a sparsifier is told and what it answers, for its callers and for each of them.
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

struct Request {
  const Params& params;
  std::span<const float> values;  // finite, and nobody else writes to them
  std::uint64_t key = 0;          // of the random draws
  // randk and blocksparse multiply what they keep by the inverse of its probability, so that the
  // expectation is the input; topk has no such form.
  bool unbiased = false;
  std::byte* section = nullptr;        // room for section_bound bytes
  float* kept = nullptr;               // room for kept_bound values
  std::uint32_t* positions = nullptr;  // room for kept_bound numbers (scratch)
};

struct Selection {
  std::size_t kept = 0;
  std::size_t section_bytes = 0;
};

// Foreign bytes that begin with a section of a chunk of so many elements.
struct SectionView {
  Kind kind;
  std::span<const std::byte> payload;
  std::size_t elements;
};

}  // namespace tern::codec::sparsifier
