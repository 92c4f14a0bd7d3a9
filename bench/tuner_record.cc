// `tern-bench tuner-samples`: measures the tuner's candidates on recorded gradients, for the
// simulator.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <memory>

#include "bench/codec_options.h"
#include "bench/codec_speed.h"
#include "bench/tuner_bench.h"
#include "bench/value_sequence.h"
#include "tuner/candidate.h"

namespace tern::bench {
namespace {

constexpr std::size_t kWarmUp = 8;       // steps, in which the residual grows to its usual size
constexpr std::size_t kRepetitions = 3;  // of each time; the median counts

struct RecordOptions {
  std::vector<std::string> inputs;
  std::size_t size_mib = 16;
  std::size_t chunk_kib = 256;
  std::string out;
};

StreamOptions stream_options(const codec::Recipe& recipe, const RecordOptions& options,
                             std::size_t elements) {
  StreamOptions result;
  result.recipe = recipe;
  result.elements = elements;
  result.chunk_elements = options.chunk_kib << 8;
  return result;
}

// What every step costs and leaves out, step after step with its residual.
struct StepError {
  double wire = 1.0;
  double loss = 0.0;
};

std::vector<StepError> errors_of(const codec::Recipe& recipe, const RecordOptions& options,
                                 const ValueSequence& values) {
  const std::size_t count = values.count();
  CodecStream stream(stream_options(recipe, options, count));
  std::vector<std::byte> own(count * sizeof(float));
  std::vector<float> decoded(count);
  std::vector<double> residual(count, 0.0);
  std::vector<StepError> result;
  for (std::size_t step = 0; step < kWarmUp + values.steps(); ++step) {
    const ValueView value = values.at(step);
    const StepResult encoded = stream.encode(value);
    stream.decode(own, decoded);
    const bool exact = stream.decodes_own_type();
    double energy = 0.0;
    double left = 0.0;
    for (std::size_t i = 0; i < count && !exact; ++i) {
      const double sum = static_cast<double>(value.floats[i]) + residual[i];
      residual[i] = sum - static_cast<double>(decoded[i]);
      energy += sum * sum;
      left += residual[i] * residual[i];
    }
    if (step < kWarmUp) continue;
    result.push_back({static_cast<double>(encoded.bytes) / static_cast<double>(own.size()),
                      energy > 0.0 ? left / energy : 0.0});
  }
  return result;
}

nlohmann::json record(const tuner::Candidate& candidate, const RecordOptions& options,
                      const ValueSequence& values) {
  const codec::Recipe recipe = value_or_exit(codec::parse_recipe(candidate.recipe));
  const auto errors = errors_of(recipe, options, values);
  const std::size_t elements = options.size_mib << 18;
  const double bytes = 4.0 * static_cast<double>(elements);
  CodecStream stream(stream_options(recipe, options, elements));
  SpeedMeter meter(elements);
  nlohmann::json rows = nlohmann::json::array();
  const auto rounded = [](double value) { return std::round(value * 1e6) * 1e-6; };
  for (std::size_t step = 0; step < values.steps(); ++step) {
    const auto value = values.repeated(step, elements);
    SpeedSamples samples;
    for (std::size_t i = 0; i < kRepetitions; ++i) {
      meter.once(stream, value.view(), value.floats, samples);
    }
    const Speed speed = samples.medians();
    const bool raw = candidate.recipe == "raw";
    const double decode_seconds = speed.added() ? speed.decode_add_seconds : speed.decode_seconds;
    rows.push_back({raw ? 0.0 : rounded(speed.encode_seconds * 1e9 / bytes),
                    rounded(decode_seconds * 1e9 / bytes), rounded(errors[step].wire),
                    rounded(errors[step].loss)});
  }
  fmt::print("{:<16} encode, decode ns a byte, wire, loss: {}\n", candidate.recipe,
             rows.back().dump());
  return {{"recipe", candidate.recipe}, {"lossless", candidate.lossless}, {"samples", rows}};
}

void run_record(const RecordOptions& options) {
  const ValueSequence values(options.inputs, "");
  nlohmann::json json = {{"chunk_bytes", options.chunk_kib << 10},
                         {"elements", values.count()},
                         {"lane", {{"byte_ns", 0.4}, {"chunk_ns", 4000.0}}},
                         {"candidates", nlohmann::json::array()},
                         {"ops", nlohmann::json::array()}};
  for (const tuner::Candidate& candidate : tuner::usual_candidates()) {
    json["candidates"].push_back(record(candidate, options, values));
  }
  write_json(options.out, json);
}

}  // namespace

void add_tuner_samples_command(CLI::App& app) {
  auto options = std::make_shared<RecordOptions>();
  CLI::App* const command = app.add_subcommand(
      "tuner-samples", "Measures the tuner's candidates on recorded gradients, for its simulator");
  command->add_option("--input", options->inputs, "One tensor at successive steps, .npy of f32")
      ->required();
  command->add_option("--size-mib", options->size_mib, "Tensor whose time is taken")
      ->check(CLI::Range(1, 1024));
  command->add_option("--chunk-kib", options->chunk_kib, "Chunk size")->check(CLI::Range(1, 4096));
  command->add_option("--out", options->out, "File to write")->required();
  command->callback([options] { run_record(*options); });
}

}  // namespace tern::bench
