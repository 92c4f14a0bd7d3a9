// Recipes on recorded tensors. Ratio and errors are those of the tensor itself, sent step after
// step; times are those of the tensor repeated to --size-mib, so that it does not lie in a cache
// that a training would need for other things.
#include <fmt/format.h>

#include <cmath>

#include "base/check.h"
#include "bench/codec_options.h"
#include "bench/codec_speed.h"
#include "bench/codec_stream.h"
#include "bench/value_sequence.h"
#include "codec/target/target.h"

namespace tern::bench {
namespace {

// A residual needs some steps to grow to its usual size.
constexpr std::size_t kStepsWithMemory = 16;
// Values that differ from step to step, as many as fit into memory well.
constexpr std::size_t kLongValues = 3;

struct Quality {
  std::size_t steps = 0;
  // Of the second half of the steps, in which states are near to what they will be.
  double bits_per_value = 0;
  double ratio = 0;
  double error = 0;         // |x - decoded| / |x|, root of the mean square
  double first_error = 0;   // of step 1
  double sum_error = 0;     // of the sums over all steps: what a training adds up
  double residual = 0;      // energy left by energy put in, of the last step, as the codec says
  double sender_state = 0;  // bytes an element
  double reader_state = 0;
};

double squares(std::span<const double> values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return sum;
}

// Of what two ends of a stream have seen until now.
class Comparison {
 public:
  explicit Comparison(std::size_t count) : sent_(count), missed_(count) {}

  // The relative squared error of this step.
  double add(std::span<const float> sent, std::span<const float> seen) {
    double energy = 0;
    double error = 0;
    for (std::size_t i = 0; i < sent.size(); ++i) {
      const double value = static_cast<double>(sent[i]);
      const double missed = value - static_cast<double>(seen[i]);
      energy += value * value;
      error += missed * missed;
      sent_[i] += value;
      missed_[i] += missed;
    }
    return energy > 0 ? error / energy : 0.0;
  }

  double of_sums() const {
    const double energy = squares(sent_);
    return energy > 0 ? std::sqrt(squares(missed_) / energy) : 0.0;
  }

 private:
  std::vector<double> sent_;
  std::vector<double> missed_;
};

StreamOptions stream_options(const codec::Recipe& recipe, const CodecOptions& options,
                             const ValueSequence& values, std::size_t elements) {
  StreamOptions result;
  result.recipe = recipe;
  result.dtype = values.dtype();
  result.elements = elements;
  result.chunk_elements = options.chunk_elements();
  result.seed = options.seed;
  return result;
}

Quality measure_quality(const codec::Recipe& recipe, const CodecOptions& options,
                        const ValueSequence& values) {
  const std::size_t count = values.count();
  CodecStream stream(stream_options(recipe, options, values, count));
  Comparison comparison(count);
  Tensor decoded{values.dtype(), std::vector<std::byte>(count * dtype_bytes(values.dtype()))};
  std::vector<float> floats(count);
  Quality quality;
  quality.steps = options.steps != 0          ? options.steps
                  : codec::has_memory(recipe) ? std::max(values.steps(), kStepsWithMemory)
                                              : values.steps();
  const std::size_t half = quality.steps / 2;
  double bytes = 0;
  double error = 0;
  for (std::size_t step = 0; step < quality.steps; ++step) {
    const ValueView value = values.at(step);
    const StepResult result = stream.encode(value);
    stream.decode(decoded.bytes, floats);
    if (stream.decodes_own_type()) {
      TERN_CHECK(std::ranges::equal(decoded.bytes, value.own));
      floats = to_f32(decoded);
    }
    const double step_error = comparison.add(value.floats, floats);
    if (step == 0) quality.first_error = std::sqrt(step_error);
    if (step >= half) {
      bytes += static_cast<double>(result.bytes);
      error += step_error;
    }
    quality.residual = result.input_energy > 0 ? result.residual_energy / result.input_energy : 0.0;
  }
  const double counted = static_cast<double>(quality.steps - half);
  const double elements = static_cast<double>(count);
  quality.bits_per_value = 8 * bytes / counted / elements;
  quality.ratio = static_cast<double>(8 * dtype_bytes(values.dtype())) / quality.bits_per_value;
  quality.error = std::sqrt(error / counted);
  quality.sum_error = comparison.of_sums();
  quality.sender_state = static_cast<double>(stream.sender_state_bytes()) / elements;
  quality.reader_state = static_cast<double>(stream.reader_state_bytes()) / elements;
  return quality;
}

class FilesBench {
 public:
  FilesBench(const CodecOptions& options)
      : options_(options),
        values_(options.inputs, options.dtype),
        elements_(options.speed_elements()),
        meter_(elements_) {
    for (std::size_t i = 0; i < std::min(kLongValues, values_.steps()); ++i) {
      long_values_.push_back(values_.repeated(i, elements_));
    }
  }

  const ValueSequence& values() const { return values_; }

  nlohmann::json row(const std::string& text, const codec::Recipe& recipe,
                     const std::string& target) {
    TERN_CHECK(codec::target::force(target));
    const Quality quality = measure_quality(recipe, options_, values_);
    const Speed speed = measure_speed(recipe);
    codec::target::force("auto");
    print(text, quality, speed);
    nlohmann::json json = speed_json(speed, elements_);
    json["recipe"] = text;
    json["canonical"] = codec::canonical_text(recipe);
    json["target"] = target;
    json["steps"] = quality.steps;
    json["compression_ratio"] = quality.ratio;
    json["bits_per_value"] = quality.bits_per_value;
    json["first_error"] = quality.first_error;
    json["error"] = quality.error;
    json["sum_error"] = quality.sum_error;
    json["residual_energy_over_input_energy"] = quality.residual;
    json["sender_state_bytes_per_value"] = quality.sender_state;
    json["reader_state_bytes_per_value"] = quality.reader_state;
    return json;
  }

  static void print_heading() {
    fmt::print(
        "errors are |x - decoded| / |x|: of step 1, of later steps, and of the sums of all steps\n"
        "medians, GB/s of f32; x is the ratio to the pass e[i] += x[i] of the same run\n"
        "state is what each end keeps, in bytes an element\n");
    fmt::print("{:<40} {:>8} {:>7} {:>8} {:>8} {:>8} {:>9} {:>7} {:>6} {:>7} {:>6} {:>6} {:>6}\n",
               "recipe", "ratio", "bits", "error 1", "error", "of sums", "res/input", "encode", "x",
               "decode", "x", "sender", "reader");
  }

 private:
  Speed measure_speed(const codec::Recipe& recipe) {
    CodecStream stream(stream_options(recipe, options_, values_, elements_));
    SpeedSamples samples;
    for (std::size_t i = 0; i < options_.iterations; ++i) {
      const ValueView value = long_values_[i % long_values_.size()].view();
      const auto& other = long_values_[(i + 1) % long_values_.size()].floats;
      SpeedSamples early;
      // The first steps are easier or harder than later ones: their times do not count.
      meter_.once(stream, value, other, 2 * i + 1 < options_.iterations ? early : samples);
    }
    return samples.medians();
  }

  void print(const std::string& text, const Quality& quality, const Speed& speed) const {
    const double gigabytes = 4e-9 * static_cast<double>(elements_);
    fmt::print(
        "{:<40} {:>8.2f} {:>7.3f} {:>8.2g} {:>8.2g} {:>8.2g} {:>9.3g} {:>7.2f} {:>6.2f} {:>7.2f} "
        "{:>6.2f} {:>6.2f} {:>6.2f}\n",
        text, quality.ratio, quality.bits_per_value, quality.first_error, quality.error,
        quality.sum_error, quality.residual, gigabytes / speed.encode_seconds, speed.encode_ratio(),
        gigabytes / speed.decode_seconds, speed.decode_ratio(), quality.sender_state,
        quality.reader_state);
    std::fflush(stdout);
  }

  const CodecOptions& options_;
  ValueSequence values_;
  std::size_t elements_;
  SpeedMeter meter_;
  std::vector<ValueSequence::Long> long_values_;
};

}  // namespace

void run_files(const CodecOptions& options, const std::vector<codec::Recipe>& recipes) {
  FilesBench bench(options);
  std::vector<std::string> targets = options.targets;
  if (targets.empty()) targets.emplace_back(codec::target::name());
  fmt::print("{} values of {}, {} elements of {}\n", bench.values().steps(), options.inputs.front(),
             bench.values().count(), dtype_name(bench.values().dtype()));
  FilesBench::print_heading();
  nlohmann::json rows = nlohmann::json::array();
  for (const std::string& target : targets) {
    for (std::size_t i = 0; i < recipes.size(); ++i) {
      rows.push_back(bench.row(options.recipes[i], recipes[i], target));
    }
  }
  if (options.json_file.empty()) return;
  write_json(options.json_file, {{"size_mib", options.size_mib},
                                 {"chunk_kib", options.chunk_kib},
                                 {"iterations", options.iterations},
                                 {"seed", options.seed},
                                 {"input", options.inputs},
                                 {"dtype", dtype_name(bench.values().dtype())},
                                 {"elements", bench.values().count()},
                                 {"rows", rows}});
}

}  // namespace tern::bench
