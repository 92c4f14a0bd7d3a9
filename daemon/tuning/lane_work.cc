#include "daemon/tuning/lane_work.h"

#include <atomic>
#include <utility>

namespace tern::daemon {
namespace {

constexpr std::uint64_t kLookAtLanesNs = 50'000'000;
constexpr std::uint64_t kFewestBlocks = 16;

}  // namespace

LaneWork::Totals LaneWork::totals() const noexcept {
  Totals totals;
  for (const LaneCounters* lane : lanes_) {
    totals.busy_ns += lane->busy_ns.load(std::memory_order_relaxed);
    totals.codec_ns += lane->codec_ns.load(std::memory_order_relaxed);
    totals.block_bytes += lane->block_bytes.load(std::memory_order_relaxed);
    totals.blocks += lane->blocks.load(std::memory_order_relaxed);
  }
  return totals;
}

std::uint64_t LaneWork::busy_ns() const noexcept { return totals().busy_ns; }

std::optional<tuner::LaneMeasurement> LaneWork::since_last(std::uint64_t now_ns) noexcept {
  if (now_ns < looked_ns_ + kLookAtLanesNs) return std::nullopt;
  looked_ns_ = now_ns;
  const Totals now = totals();
  if (now.blocks < last_.blocks + kFewestBlocks) return std::nullopt;
  const Totals before = std::exchange(last_, now);
  return tuner::LaneMeasurement{.busy_ns = static_cast<double>(now.busy_ns - before.busy_ns),
                                .codec_ns = static_cast<double>(now.codec_ns - before.codec_ns),
                                .wire_bytes = now.block_bytes - before.block_bytes,
                                .blocks = now.blocks - before.blocks};
}

}  // namespace tern::daemon
