#include "tuner/codec_speeds.h"

#include <algorithm>
#include <cmath>

namespace tern::tuner {
namespace {

constexpr double kShadowWeight = 0.3;  // of a new measurement
constexpr double kLaneWeight = 0.05;   // once there are some
constexpr std::uint32_t kSettled = 4;  // uses
// Raw is not encoded, and adding is one pass over memory.
constexpr double kAddNs = 0.15;
// Until anything is measured, a codec is taken for a slow one: nothing is lost by sending raw.
constexpr double kUnknownNs = 5.0;

}  // namespace

CodecSpeeds::CodecSpeeds(std::size_t candidates) : shadow_(candidates), on_lane_(candidates) {
  if (!shadow_.empty()) shadow_.front().fill({0.0, kAddNs, true});
}

std::size_t CodecSpeeds::size_class(std::uint64_t chunk_bytes) noexcept {
  if (chunk_bytes <= (16u << 10)) return 0;
  if (chunk_bytes <= (64u << 10)) return 1;
  return chunk_bytes <= (256u << 10) ? 2 : 3;
}

void CodecSpeeds::observe_shadow(const SampleMeasurement& sample) {
  if (sample.bytes == 0 || sample.candidate == kRaw) return;
  const double bytes = static_cast<double>(sample.bytes);
  const Speed fresh{sample.encode_ns / bytes, sample.decode_ns / bytes, true};
  Speed& known = shadow_[sample.candidate][size_class(sample.bytes)];
  if (!known.known) {
    known = fresh;
    return;
  }
  known.encode_ns += kShadowWeight * (fresh.encode_ns - known.encode_ns);
  known.decode_ns += kShadowWeight * (fresh.decode_ns - known.decode_ns);
}

// Of a size that was not measured: that of the nearest larger or smaller one.
CodecSpeeds::Speed CodecSpeeds::nearest(CandidateIndex candidate,
                                        std::size_t size_class) const noexcept {
  const auto& by_size = shadow_[candidate];
  for (std::size_t distance = 0; distance < kSizeClasses; ++distance) {
    if (size_class + distance < kSizeClasses && by_size[size_class + distance].known) {
      return by_size[size_class + distance];
    }
    if (size_class >= distance && by_size[size_class - distance].known) {
      return by_size[size_class - distance];
    }
  }
  return {kUnknownNs, kUnknownNs, false};
}

double CodecSpeeds::ratio_of(CandidateIndex candidate) const noexcept {
  if (on_lane_[candidate].uses > 0) return on_lane_[candidate].ratio;
  double sum = 0.0;
  double count = 0.0;
  for (const OnLane& one : on_lane_) {
    if (one.uses == 0) continue;
    sum += std::log(one.ratio);
    count += 1.0;
  }
  return count == 0.0 ? 1.0 : std::exp(sum / count);
}

// A clock may have seen no time go by.
bool CodecSpeeds::can_compare(const LaneCoding& coding, const Speed& shadow) noexcept {
  return coding.candidate != kRaw && shadow.known && shadow.encode_ns > 0.0;
}

double CodecSpeeds::load_of(const LaneCoding& coding) const noexcept {
  const Speed shadow = nearest(coding.candidate, coding.size_class);
  const OnLane& here = on_lane_[coding.candidate];
  if (!can_compare(coding, shadow) || here.uses < kSettled) return 0.0;
  return coding.encode_ns / (shadow.encode_ns * here.ratio);
}

void CodecSpeeds::observe_lane(const LaneCoding& coding, double load) {
  const Speed shadow = nearest(coding.candidate, coding.size_class);
  if (!can_compare(coding, shadow)) return;
  const double ratio = std::clamp(coding.encode_ns / (shadow.encode_ns * load), 0.1, 20.0);
  OnLane& here = on_lane_[coding.candidate];
  const double weight = std::max(kLaneWeight, 1.0 / (1.0 + here.uses));
  here.ratio *= std::pow(ratio / here.ratio, weight);
  ++here.uses;
}

CodecCost CodecSpeeds::on_lane(CandidateIndex candidate, std::size_t size_class,
                               double load) const noexcept {
  const Speed shadow = nearest(candidate, size_class);
  const double factor = candidate == kRaw ? load : load * ratio_of(candidate);
  return {shadow.encode_ns * factor, shadow.decode_ns * factor, 1.0};
}

}  // namespace tern::tuner
