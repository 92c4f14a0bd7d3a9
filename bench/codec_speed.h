#pragma once

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "bench/codec_stream.h"
#include "bench/inputs.h"

namespace tern::bench {

// Times of a step, and of the pass in the same run.
struct Speed {
  double pass_seconds = 0;
  double encode_seconds = 0;
  double decode_seconds = 0;
  double decode_add_seconds = 0;  // 0 where blocks of the recipe cannot be added

  double encode_ratio() const { return pass_seconds / encode_seconds; }
  double decode_ratio() const { return pass_seconds / decode_seconds; }
  bool added() const { return decode_add_seconds > 0; }
  double decode_add_ratio() const { return added() ? pass_seconds / decode_add_seconds : 0.0; }
};

// The times of some iterations.
struct SpeedSamples {
  std::vector<double> pass, encode, decode, decode_add;

  // What a user meets, and not the luckiest of the runs. Requires: one iteration at least.
  Speed medians() const;
};

// The memory that is written while times are taken.
class SpeedMeter {
 public:
  explicit SpeedMeter(std::size_t elements);

  // One step of the stream.
  StepResult once(CodecStream& stream, const ValueView& value, std::span<const float> other,
                  SpeedSamples& samples);

 private:
  FloatArray sums_;
  FloatArray decoded_;
  FloatArray yardstick_;
};

// The fields of a JSON row that all rows have.
nlohmann::json speed_json(const Speed& speed, std::size_t elements);

}  // namespace tern::bench
