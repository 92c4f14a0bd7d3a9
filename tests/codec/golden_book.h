#pragma once

#include <array>
#include <cstdint>

#include "codec/entropy/codebook.h"

namespace tern::codec {

// The static codebook of the golden blocks; the same for ever.
inline entropy::Codebook golden_book() {
  std::array<std::uint64_t, 256> histogram{};
  for (std::size_t symbol = 0; symbol < 256; ++symbol) {
    const auto distance = symbol > 119 ? symbol - 119 : 119 - symbol;
    histogram[symbol] = 1000000 / (1 + distance * distance);
  }
  return entropy::train_codebook("golden", histogram);
}

}  // namespace tern::codec
