#pragma once

#include "codec/sparsifier/params.h"

// One row per sparsifier. Private to codec/sparsifier/.
namespace tern::codec::sparsifier {

struct Implementation {
  std::size_t (*section_bound)(const Params& params, std::size_t elements) noexcept;
  std::size_t (*kept_bound)(const Params& params, std::size_t elements) noexcept;
  Selection (*select)(const Request& request) noexcept;
  bool (*read_section)(const SectionView& view, std::uint32_t* positions,
                       Selection& selection) noexcept;
  double (*omega)(const Params& params, std::size_t elements) noexcept;
};

extern const Implementation kTopk;
extern const Implementation kStrata;

// k, of `units` elements or blocks: never 0 unless there is nothing to keep.
std::size_t count_of(const Params& params, std::size_t units) noexcept;

}  // namespace tern::codec::sparsifier
