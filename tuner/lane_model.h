#pragma once

// What a lane does beside coding, and what it costs at present.

#include <array>
#include <cstdint>

#include "tuner/cost_model.h"

namespace tern::tuner {

// What a lane did in an interval.
struct LaneMeasurement {
  double busy_ns = 0.0;
  double codec_ns = 0.0;  // of that
  std::uint64_t wire_bytes = 0;
  std::uint64_t blocks = 0;
};

// Least squares over the recent past: work = bytes * byte_ns + blocks * chunk_ns, drawn towards
// what is usual as long as there is little else to go by.
class LaneModel {
 public:
  // Of a lane whose core is its own.
  const LaneCost& cost() const noexcept { return cost_; }
  // Is what is usual from now on.
  void set_cost(const LaneCost& cost) noexcept { cost_ = usual_ = cost; }

  // How much longer the lane took than it would on a core of its own; 0: this interval does not
  // say, because most of it was coding or too little is known yet.
  double load_of(const LaneMeasurement& lane) const noexcept;

  // `load` is how much longer it took because others use its core.
  void learn(const LaneMeasurement& lane, double load) noexcept;

 private:
  LaneCost cost_;
  LaneCost usual_;
  // Normal equations, faded: [bytes^2, bytes blocks, blocks^2], and the right side.
  std::array<double, 3> matrix_{};
  std::array<double, 2> vector_{};
  std::uint64_t intervals_ = 0;
};

}  // namespace tern::tuner
