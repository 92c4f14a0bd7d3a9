#pragma once

// What lanes have done, by their counters.

#include <cstdint>
#include <optional>
#include <vector>

#include "daemon/lane/lane_settings.h"
#include "tuner/lane_model.h"

namespace tern::daemon {

// Thread: one, while lanes count.
class LaneWork {
 public:
  // Outlives this.
  void add(const LaneCounters& lane) { lanes_.push_back(&lane); }

  // Of all lanes since their start.
  std::uint64_t busy_ns() const noexcept;
  // Since the last answer. None: too little to learn from, in time or in blocks.
  std::optional<tuner::LaneMeasurement> since_last(std::uint64_t now_ns) noexcept;

 private:
  struct Totals {
    std::uint64_t busy_ns = 0, codec_ns = 0, block_bytes = 0, blocks = 0;
  };
  Totals totals() const noexcept;

  std::vector<const LaneCounters*> lanes_;
  Totals last_;
  std::uint64_t looked_ns_ = 0;
};

}  // namespace tern::daemon
