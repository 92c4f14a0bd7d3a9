#pragma once

#include <cstddef>

#include "codec/kernels.h"
#include "codec/recipe.h"

namespace tern::codec {

// Where the five runs of each digit block lie. Both layouts are `full_blocks` whole digit blocks
// and a tail of shorter runs; they differ in the distances only.
struct DigitLayout {
  std::size_t elements;
  std::size_t full_blocks;
  std::size_t block_step;
  std::size_t run_step;
  std::size_t tail_base;  // element of the tail's first column and first run
  std::size_t tail_columns;
  std::size_t tail_run_step;
};

inline DigitLayout digit_layout(Layout layout, std::size_t elements) noexcept {
  DigitLayout result{};
  result.elements = elements;
  if (layout == Layout::tile) {
    result.full_blocks = elements / kBlockElements;
    result.block_step = kBlockElements;
    result.run_step = kRunElements;
    result.tail_base = result.full_blocks * kBlockElements;
    result.tail_columns = (elements - result.tail_base + kRunsPerBlock - 1) / kRunsPerBlock;
    result.tail_run_step = result.tail_columns;
    return result;
  }
  const std::size_t columns = (elements + kRunsPerBlock - 1) / kRunsPerBlock;
  const std::size_t before_last_run = (kRunsPerBlock - 1) * columns;
  result.full_blocks =
      elements > before_last_run ? (elements - before_last_run) / kBlockColumns : 0;
  result.block_step = kBlockColumns;
  result.run_step = columns;
  result.tail_base = result.full_blocks * kBlockColumns;
  result.tail_columns = columns - result.tail_base;
  result.tail_run_step = columns;
  return result;
}

}  // namespace tern::codec
