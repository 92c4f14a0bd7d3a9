// Speed of every recipe on every kernel target, as gigabytes of f32 per second and as a ratio to
// the pass e[i] += x[i] over the same tensor in the same run.
#include <fmt/format.h>

#include "base/check.h"
#include "bench/codec_options.h"
#include "bench/codec_speed.h"
#include "bench/codec_stream.h"
#include "bench/inputs.h"
#include "codec/target/target.h"

namespace tern::bench {
namespace {

// What all rows are measured with.
struct Bench {
  explicit Bench(const CodecOptions& with)
      : options(with),
        elements(with.speed_elements()),
        inputs(elements, with.pools, with.seed),
        meter(elements) {}

  const CodecOptions& options;
  std::size_t elements;
  Inputs inputs;
  SpeedMeter meter;
};

struct Measurement {
  Speed speed;
  double gigabytes = 0;  // of the tensor
  double compression = 0;
  double residual_over_input = 0;
};

Measurement measure(const codec::Recipe& recipe, const std::string& target, Bench& bench) {
  const CodecOptions& options = bench.options;
  TERN_CHECK(codec::target::force(target));
  StreamOptions stream_options;
  stream_options.recipe = recipe;
  stream_options.elements = bench.elements;
  stream_options.chunk_elements = options.chunk_elements();
  stream_options.seed = options.seed;
  CodecStream stream(stream_options);
  Measurement measured;
  SpeedSamples samples;
  for (std::size_t i = 0; i < options.iterations; ++i) {
    const std::span<const float> input = bench.inputs.next(stream_options.elements);
    const std::span<const float> other = bench.inputs.next(stream_options.elements);
    const StepResult step = bench.meter.once(stream, {std::as_bytes(input), input}, other, samples);
    // The last iteration's: the residual is then the nearest to its steady state.
    measured.compression =
        static_cast<double>(input.size_bytes()) / static_cast<double>(step.bytes);
    measured.residual_over_input =
        step.input_energy > 0 ? step.residual_energy / step.input_energy : 0.0;
  }
  codec::target::force("auto");
  measured.speed = samples.medians();
  measured.gigabytes = 4e-9 * static_cast<double>(bench.elements);
  return measured;
}

std::string scale_text(const codec::Recipe& recipe) {
  if (recipe.compressor != codec::Compressor::threelc) return "-";
  return recipe.scale_elements == 0 ? "tensor" : std::to_string(recipe.scale_elements);
}

void print_heading() {
  fmt::print("medians, GB/s of f32; x is the ratio to the pass e[i] += x[i] of the same run\n");
  fmt::print("{:<34} {:>7} {:>7} {:>6} {:>7} {:>5} {:>7} {:>5} {:>7} {:>5} {:>7} {:>9}\n", "recipe",
             "scale", "target", "pass", "encode", "x", "decode", "x", "dec_add", "x", "ratio",
             "res/input");
}

void print_row(const std::string& text, const std::string& target, const codec::Recipe& recipe,
               const Measurement& row) {
  const Speed& speed = row.speed;
  const double gigabytes = row.gigabytes;
  std::string added = fmt::format("{:>7} {:>5}", "-", "-");
  if (speed.added()) {
    added = fmt::format("{:>7.2f} {:>5.2f}", gigabytes / speed.decode_add_seconds,
                        speed.decode_add_ratio());
  }
  fmt::print(
      "{:<34} {:>7} {:>7} {:>6.1f} {:>7.2f} {:>5.2f} {:>7.2f} {:>5.2f} {} {:>7.2f} "
      "{:>9.4g}\n",
      text, scale_text(recipe), target, gigabytes / speed.pass_seconds,
      gigabytes / speed.encode_seconds, speed.encode_ratio(), gigabytes / speed.decode_seconds,
      speed.decode_ratio(), added, row.compression, row.residual_over_input);
}

}  // namespace

void run_synthetic(const CodecOptions& options, const std::vector<codec::Recipe>& recipes) {
  std::vector<std::string> targets = options.targets;
  if (targets.empty()) {
    for (const auto name : codec::target::supported()) targets.emplace_back(name);
  }
  Bench bench(options);
  nlohmann::json rows = nlohmann::json::array();
  print_heading();
  for (std::size_t i = 0; i < recipes.size(); ++i) {
    for (const std::string& target : targets) {
      const Measurement row = measure(recipes[i], target, bench);
      print_row(options.recipes[i], target, recipes[i], row);
      nlohmann::json json = speed_json(row.speed, bench.elements);
      json["recipe"] = codec::canonical_text(recipes[i]);
      json["scale"] = scale_text(recipes[i]);
      json["target"] = target;
      json["compression_ratio"] = row.compression;
      json["residual_energy_over_input_energy"] = row.residual_over_input;
      rows.push_back(std::move(json));
    }
  }
  if (options.json_file.empty()) return;
  write_json(options.json_file, {{"size_mib", options.size_mib},
                                 {"chunk_kib", options.chunk_kib},
                                 {"iterations", options.iterations},
                                 {"seed", options.seed},
                                 {"input", "gaussian"},
                                 {"rows", rows}});
}

}  // namespace tern::bench
