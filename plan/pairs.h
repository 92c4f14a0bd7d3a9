#pragma once

// Elements that every rank has for every rank. As one rank sees them: what it has for rank 0, then
// for rank 1, and so on; and what it gets in the same order.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>

#include "plan/shares.h"

namespace tern::plan {

struct Pairs {
  std::uint64_t count = 0;                // elements that a rank has in all; with counts 0
  std::uint32_t ranks = 1;                // of the group
  const std::uint64_t* counts = nullptr;  // for each rank, then from each; null: all alike

  std::uint64_t sent() const noexcept {
    return counts != nullptr ? std::accumulate(counts, counts + ranks, std::uint64_t{0}) : count;
  }
  std::uint64_t received() const noexcept {
    return counts != nullptr
               ? std::accumulate(counts + ranks, counts + std::size_t{2} * ranks, std::uint64_t{0})
               : count;
  }
  std::uint64_t largest() const noexcept {
    return counts != nullptr ? *std::max_element(counts, counts + std::size_t{2} * ranks)
                             : count / ranks;
  }

  // Null, or a sentence.
  const char* objection() const noexcept {
    if (counts == nullptr) {
      return count % ranks == 0 ? nullptr
                                : "count must be a multiple of the group's size, or give counts";
    }
    if (count != 0) return "with counts for each rank, count must be 0";
    return fit(counts) && fit(counts + ranks) ? nullptr : "the counts add up to too many elements";
  }

 private:
  bool fit(const std::uint64_t* one_way) const noexcept {
    std::uint64_t left = kMaxElements;
    for (std::uint32_t i = 0; i < ranks; ++i) {
      if (one_way[i] > left) return false;
      left -= one_way[i];
    }
    return true;
  }
};

// The numbers of the elements that a rank's input and output hold begin here.
constexpr std::uint64_t pair_inputs_begin(std::uint32_t rank) noexcept {
  return std::uint64_t{rank} * 4 * kMaxElements;
}
constexpr std::uint64_t pair_outputs_begin(std::uint32_t rank) noexcept {
  return pair_inputs_begin(rank) + 2 * kMaxElements;
}

}  // namespace tern::plan
