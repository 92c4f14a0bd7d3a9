#include "tuner/lane_model.h"

#include <algorithm>

namespace tern::tuner {
namespace {

constexpr double kLaneFade = 0.98;  // of what lanes did before
// A daemon's first operations touch memory for the first time. They are soon forgotten.
constexpr std::uint64_t kFirst = 32;
constexpr double kFirstFade = 0.85;
constexpr double kMostly = 0.5;
constexpr std::uint64_t kKnown = 8;  // intervals

}  // namespace

double LaneModel::load_of(const LaneMeasurement& lane) const noexcept {
  const double work = lane.busy_ns - lane.codec_ns;
  const double usual = static_cast<double>(lane.wire_bytes) * cost_.byte_ns +
                       static_cast<double>(lane.blocks) * cost_.chunk_ns;
  if (intervals_ < kKnown || !(work > kMostly * lane.busy_ns) || !(usual > 0.0)) return 0.0;
  return work / usual;
}

void LaneModel::learn(const LaneMeasurement& lane, double load) noexcept {
  const double work = (lane.busy_ns - lane.codec_ns) / load;
  if (!(work > 0.0) || lane.blocks == 0) return;
  ++intervals_;
  const double bytes = static_cast<double>(lane.wire_bytes);
  const double blocks = static_cast<double>(lane.blocks);
  const double scale = 1.0 / (blocks * blocks);  // each interval counts once, however long
  const double fade = intervals_ < kFirst ? kFirstFade : kLaneFade;
  for (double& one : matrix_) one *= fade;
  for (double& one : vector_) one *= fade;
  matrix_[0] += scale * bytes * bytes;
  matrix_[1] += scale * bytes * blocks;
  matrix_[2] += scale * blocks * blocks;
  vector_[0] += scale * bytes * work;
  vector_[1] += scale * blocks * work;
  const double chunk = 64.0 * 1024.0;
  const double a = matrix_[0] + chunk * chunk;
  const double b = matrix_[1];
  const double c = matrix_[2] + 1.0;
  const double u = vector_[0] + chunk * chunk * usual_.byte_ns;
  const double v = vector_[1] + usual_.chunk_ns;
  const double determinant = a * c - b * b;
  cost_.byte_ns = std::clamp((u * c - v * b) / determinant, 0.02, 4.0);
  cost_.chunk_ns = std::clamp((a * v - b * u) / determinant, 200.0, 200'000.0);
}

}  // namespace tern::tuner
