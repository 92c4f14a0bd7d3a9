#pragma once

// How the elements of an op are shared out among the ranks: the share of rank 0 comes first, then
// that of rank 1, and so on.

#include <algorithm>
#include <cstdint>

namespace tern::plan {

// No op has more elements, nor has a rank's input or output.
inline constexpr std::uint64_t kMaxElements = std::uint64_t{1} << 40;

struct Shares {
  std::uint64_t count = 0;                // elements of the op
  std::uint32_t ranks = 1;                // of the group
  const std::uint64_t* counts = nullptr;  // of each rank; null: equal shares

  std::uint64_t of(std::uint32_t rank) const noexcept {
    return counts != nullptr ? counts[rank] : count / ranks;
  }
  std::uint64_t largest() const noexcept {
    return counts != nullptr ? *std::max_element(counts, counts + ranks) : count / ranks;
  }
  // Elements before the share of `rank`. Takes a step for each of them that has a count.
  std::uint64_t begin(std::uint32_t rank) const noexcept {
    if (counts == nullptr) return rank * (count / ranks);
    std::uint64_t begin = 0;
    for (std::uint32_t i = 0; i < rank; ++i) begin += counts[i];
    return begin;
  }

  // Whose share comes as the i-th from that of the rank before `rank` downwards, its own last.
  std::uint32_t down_from(std::uint32_t rank, std::uint32_t i) const noexcept {
    return (rank + ranks - 1 - i) % ranks;
  }

  // Null, or a sentence: why these are not the shares of `count` elements.
  const char* objection() const noexcept {
    if (counts == nullptr) {
      return count % ranks == 0 ? nullptr
                                : "count must be a multiple of the group's size, or give counts";
    }
    std::uint64_t left = count;
    for (std::uint32_t i = 0; i < ranks; ++i) {
      if (counts[i] > left) return "the counts add up to more than count";
      left -= counts[i];
    }
    return left == 0 ? nullptr : "the counts add up to less than count";
  }
};

}  // namespace tern::plan
