#pragma once

#include <cstdint>

#include "codec/device/chunk.h"
#include "codec/device/simt.h"
#include "codec/kernels.h"
#include "wire/block.h"

// What both directions of 3LC share: the tile layout, whose five runs of a digit block follow each
// other, and the tail of up to 64 columns whose runs are shorter.
namespace tern::codec::device {

// As codec/kernels.h has them, in the numbers that places are counted in here.
inline constexpr std::uint32_t kRunElements = codec::kRunElements;
inline constexpr std::uint32_t kRunsPerBlock = codec::kRunsPerBlock;
inline constexpr std::uint32_t kBlockColumns = codec::kBlockColumns;
inline constexpr std::uint32_t kBlockElements = codec::kBlockElements;

struct ThreelcShape {
  std::uint32_t elements;
  std::uint32_t columns;
  std::uint32_t full_blocks;
  std::uint32_t tail_base;     // element
  std::uint32_t tail_columns;  // also the distance of the tail's runs
  std::uint32_t scale_count;
  std::uint32_t scale_elements;

  TERN_DEVICE ThreelcShape(std::uint32_t count, std::uint32_t per_scale)
      : elements(count),
        columns((count + 4) / 5),
        full_blocks(count / kBlockElements),
        tail_base(full_blocks * kBlockElements),
        tail_columns((count - tail_base + 4) / 5),
        scale_count(count == 0       ? 0
                    : per_scale == 0 ? 1
                                     : (count - 1) / per_scale + 1),
        scale_elements(per_scale) {}

  TERN_DEVICE std::uint32_t group_of(std::uint32_t element) const {
    return scale_count == 1 ? 0 : element / scale_elements;
  }
  TERN_DEVICE std::uint32_t tail_element(std::uint32_t run, std::uint32_t column) const {
    return tail_base + run * tail_columns + column;
  }
};

// The group of an element, and of those that lie whole runs behind it.
class RunGroup {
 public:
  TERN_DEVICE RunGroup(const ThreelcShape& shape, std::uint32_t element)
      : scale_elements_(shape.scale_elements), group_(shape.group_of(element)) {
    left_ = shape.scale_count == 1 ? kNoEnd : (group_ + 1) * scale_elements_ - element;
  }

  TERN_DEVICE std::uint32_t get() const { return group_; }
  // One run on. A group has whole runs.
  TERN_DEVICE void advance() {
    if (left_ <= kRunElements) {
      ++group_;
      left_ += scale_elements_;
    }
    left_ -= kRunElements;
  }

 private:
  static constexpr std::uint32_t kNoEnd = 0x80000000u;

  std::uint32_t scale_elements_;
  std::uint32_t group_;
  std::uint32_t left_;  // elements of the group from this one on
};

// 3^(4 - run)
TERN_DEVICE constexpr std::uint32_t digit_weight(unsigned run) {
  return run == 0 ? 81u : run == 1 ? 27u : run == 2 ? 9u : run == 3 ? 3u : 1u;
}

// What a thread of a launch of whole digit blocks works on: four columns, whose five runs lie 64
// elements apart.
struct FourColumns {
  std::uint32_t block;   // digit block
  std::uint32_t column;  // the first of the four, of the chunk

  static constexpr unsigned kThreads = 16;  // for each digit block

  TERN_DEVICE explicit FourColumns(std::uint32_t first_block)
      : block(first_block + simt::thread() / kThreads),
        column(kBlockColumns * block + simt::thread() % kThreads * 4) {}

  TERN_DEVICE std::uint32_t element(unsigned run) const {
    return kBlockElements * block + kRunElements * run + simt::thread() % kThreads * 4;
  }
};

}  // namespace tern::codec::device
