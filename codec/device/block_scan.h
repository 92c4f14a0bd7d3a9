#pragma once

#include <cstdint>

#include "codec/device/simt.h"

// Scans over one number of each thread of a block.
namespace tern::codec::device {

struct Scanned {
  std::uint32_t before;  // of the threads below
  std::uint32_t all;
};

struct Sum {
  static TERN_DEVICE std::uint32_t of(std::uint32_t a, std::uint32_t b) { return a + b; }
};
struct Largest {
  static TERN_DEVICE std::uint32_t of(std::uint32_t a, std::uint32_t b) { return a < b ? b : a; }
};

// `totals` has one number for each warp. Ends with a barrier: it may be used again at once.
template <typename Combine>
TERN_DEVICE Scanned block_scan(std::uint32_t value, const simt::Shared<std::uint32_t>& totals) {
  std::uint32_t sum = value;
  for (unsigned distance = 1; distance < simt::kWarp; distance *= 2) {
    const std::uint32_t below = simt::shuffle_up(sum, distance);
    if (simt::lane() >= distance) sum = Combine::of(sum, below);
  }
  std::uint32_t before = simt::shuffle_up(sum, 1);
  if (simt::lane() == 0) before = 0;
  if (simt::lane() == simt::kWarp - 1) totals.store(simt::warp(), sum);
  simt::barrier();
  Scanned result{0, 0};
  for (unsigned warp = 0; warp < simt::warps(); ++warp) {
    const std::uint32_t total = totals.load(warp);
    if (warp < simt::warp()) result.before = Combine::of(result.before, total);
    result.all = Combine::of(result.all, total);
  }
  result.before = Combine::of(result.before, before);
  simt::barrier();
  return result;
}

}  // namespace tern::codec::device
