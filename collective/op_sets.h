#pragma once

// Sets of nodes and of local ranks are 64-bit masks.

#include <cstdint>

namespace tern::collective {

constexpr std::uint64_t bit(std::uint32_t index) noexcept { return std::uint64_t{1} << index; }
constexpr std::uint64_t low_bits(std::uint32_t count) noexcept {
  return count >= 64 ? ~std::uint64_t{0} : bit(count) - 1;
}

}  // namespace tern::collective
