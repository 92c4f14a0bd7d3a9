#pragma once

#include <array>
#include <cstdint>

#include "codec/kernels.h"
#include "codec/target/highway_table.h"

// What the files compiled per vector target share. Private to codec/.
namespace tern::codec {

// `target` is one bit of hwy::SupportedTargets(); null if this build has no kernels for it.
const ThreelcKernels* threelc_highway(std::int64_t target) noexcept;
const ConvertKernels* convert_highway(std::int64_t target) noexcept;

// For each mask of eight, the indices of its set bits: moves the wanted bytes of a group to its
// front.
inline constexpr auto kCompressOrder = [] {
  std::array<std::array<std::uint8_t, 8>, 256> table{};
  for (std::size_t mask = 0; mask < 256; ++mask) {
    std::size_t used = 0;
    for (std::uint8_t bit = 0; bit < 8; ++bit) {
      if ((mask >> bit & 1) != 0) table[mask][used++] = bit;
    }
  }
  return table;
}();

}  // namespace tern::codec
