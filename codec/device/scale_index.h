#pragma once

#include <cstdint>

#include "codec/device/simt.h"

namespace tern::codec::device {

// Which scale an element has. `block` elements share one, whole rows of 32; of any others, which
// no block may have, all have the first.
class ScaleIndex {
 public:
  // By a product in place of a division, exact as long as a chunk has less than 2^20 elements.
  static TERN_DEVICE std::uint32_t reciprocal(std::uint32_t block, std::uint32_t scale_count) {
    return scale_count <= 1 || block % kRow != 0 ? 0 : 0x7fffffffu / (block / kRow) + 1;
  }
  static TERN_DEVICE std::uint32_t of(std::uint32_t element, std::uint32_t reciprocal) {
    return static_cast<std::uint32_t>(std::uint64_t{element / kRow} * reciprocal >> 31);
  }

 private:
  static constexpr std::uint32_t kRow = 32;
};

}  // namespace tern::codec::device
