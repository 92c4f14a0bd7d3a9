#include "bench/codec_speed.h"

#include "bench/stopwatch.h"

namespace tern::bench {

SpeedMeter::SpeedMeter(std::size_t elements)
    : sums_(elements, 0.5f), decoded_(elements, 0.5f), yardstick_(elements, 0.5f) {}

StepResult SpeedMeter::once(CodecStream& stream, const ValueView& value,
                            std::span<const float> other, Speed& best) {
  StepResult result;
  const auto own = std::as_writable_bytes(decoded_.span()).first(value.own.size());
  const auto keep_least = [](double seconds, double& least) { least = std::min(seconds, least); };
  keep_least(seconds_of([&] { pass(yardstick_.span(), other); }), best.pass_seconds);
  keep_least(seconds_of([&] { result = stream.encode(value); }), best.encode_seconds);
  keep_least(seconds_of([&] { stream.decode(own, decoded_.span()); }), best.decode_seconds);
  if (stream.can_add()) {
    keep_least(seconds_of([&] { stream.decode_add(sums_.span()); }), best.decode_add_seconds);
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
