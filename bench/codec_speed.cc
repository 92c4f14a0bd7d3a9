#include "bench/codec_speed.h"

#include <algorithm>

#include "bench/stopwatch.h"

namespace tern::bench {
namespace {

// The lower of the two in the middle, so that it is a time that was measured.
double median_of(std::vector<double> times) {
  if (times.empty()) return 0.0;
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>((times.size() - 1) / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

}  // namespace

Speed SpeedSamples::medians() const {
  return {median_of(pass), median_of(encode), median_of(decode), median_of(decode_add)};
}

SpeedMeter::SpeedMeter(std::size_t elements)
    : sums_(elements, 0.5f), decoded_(elements, 0.5f), yardstick_(elements, 0.5f) {}

StepResult SpeedMeter::once(CodecStream& stream, const ValueView& value,
                            std::span<const float> other, SpeedSamples& samples) {
  StepResult result;
  const auto own = std::as_writable_bytes(decoded_.span()).first(value.own.size());
  samples.pass.push_back(seconds_of([&] { pass(yardstick_.span(), other); }));
  samples.encode.push_back(seconds_of([&] { result = stream.encode(value); }));
  samples.decode.push_back(seconds_of([&] { stream.decode(own, decoded_.span()); }));
  if (stream.can_add()) {
    samples.decode_add.push_back(seconds_of([&] { stream.decode_add(sums_.span()); }));
  }
  return result;
}

nlohmann::json speed_json(const Speed& speed, std::size_t elements) {
  const double gigabytes = 4e-9 * static_cast<double>(elements);
  nlohmann::json row = {{"pass_gb_per_s", gigabytes / speed.pass_seconds},
                        {"encode_gb_per_s", gigabytes / speed.encode_seconds},
                        {"encode_ratio", speed.encode_ratio()},
                        {"decode_gb_per_s", gigabytes / speed.decode_seconds},
                        {"decode_ratio", speed.decode_ratio()}};
  if (speed.added()) {
    row["decode_add_gb_per_s"] = gigabytes / speed.decode_add_seconds;
    row["decode_add_ratio"] = speed.decode_add_ratio();
  }
  return row;
}

}  // namespace tern::bench
