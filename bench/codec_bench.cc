// Speed of every recipe on every kernel target, as gigabytes of f32 per second and as a ratio to
// the pass e[i] += x[i] over the same tensor in the same run: the pass is what this machine's
// memory allows, so that the ratio means the same on another machine.
#include "bench/codec_bench.h"

#include <fmt/format.h>
#include <time.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "bench/inputs.h"
#include "bench/npy.h"
#include "codec/codec.h"
#include "codec/kernel_target.h"

namespace tern::bench {
namespace {

struct CodecOptions {
  std::vector<std::string> recipes = {"raw",
                                      "bf16",
                                      "ef(bf16)",
                                      "3lc:s=1",
                                      "3lc:s=1.75",
                                      "3lc:s=1,scale=16384",
                                      "3lc:s=1.75,scale=16384",
                                      "3lc:s=1,scale=65536",
                                      "3lc:s=1,scale=tensor",
                                      "3lc:s=1,zrun=off"};
  std::vector<std::string> targets;
  std::size_t size_mib = 64;
  std::size_t chunk_kib = 256;
  std::size_t iterations = 12;
  std::size_t pools = 3;
  std::uint64_t seed = 1;
  std::string input_file;
  std::string json_file;
};

std::size_t element_count(const CodecOptions& options) { return options.size_mib << 18; }

// Time of this thread on a processor: other work on the machine then costs cache, but not its own
// time.
double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

template <typename Function>
double seconds_of(Function&& function) {
  const double begin = thread_seconds();
  function();
  return thread_seconds() - begin;
}

[[gnu::noinline]] void pass(std::span<float> sums, std::span<const float> values) {
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += values[i];
}

struct Measurement {
  std::string recipe;
  std::string target;
  double pass_seconds = 1e9;
  double encode_seconds = 1e9;
  double decode_seconds = 1e9;
  double decode_add_seconds = 1e9;
  double encode_ratio = 0;  // best of the ratios within one iteration
  double decode_ratio = 0;
  double decode_add_ratio = 0;
  double compression = 0;
  double residual_over_input = 0;
};

struct Block {
  wire::BlockHeader header;
  std::span<const std::byte> payload;
};

struct Arena {
  explicit Arena(std::size_t count)
      : residual(count, 0.0f),
        sums(count, 0.5f),
        decoded(count, 0.5f),
        yardstick(count, 0.5f),
        payload(5 * count) {}
  FloatArray residual;
  FloatArray sums;
  FloatArray decoded;
  FloatArray yardstick;
  std::vector<std::byte> payload;
  std::vector<Block> blocks;
};

void encode_tensor(const codec::Recipe& recipe, std::span<const float> input,
                   std::size_t chunk_elements, Arena& arena, double& input_energy,
                   double& residual_energy) {
  codec::EncodeRequest request;
  const bool tensor_scale =
      recipe.compressor == codec::Compressor::threelc && recipe.scale_elements == 0;
  if (tensor_scale) {
    request.fixed_scale_max = codec::scan_max(input, arena.residual.data(), 1.0f).max;
  }
  arena.blocks.clear();
  std::span<std::byte> free = arena.payload;
  for (std::size_t begin = 0; begin < input.size(); begin += chunk_elements) {
    const std::size_t length = std::min(chunk_elements, input.size() - begin);
    request.input = input.subspan(begin, length);
    request.residual = arena.residual.data() + begin;
    const auto room = free.first(codec::encode_bound(recipe, length));
    Block block;
    const codec::EncodeResult result = codec::encode(recipe, request, room, block.header);
    TERN_CHECK(!result.nonfinite);
    block.payload = room.first(result.payload_bytes);
    free = free.subspan(room.size());
    arena.blocks.push_back(block);
    input_energy += result.input_energy;
    residual_energy += result.residual_energy;
  }
}

template <typename Decode>
void decode_tensor(const Arena& arena, std::span<float> out, Decode&& decode) {
  for (const Block& block : arena.blocks) {
    TERN_CHECK(decode(block.header, block.payload, out.first(block.header.elements)) ==
               codec::DecodeStatus::ok);
    out = out.subspan(block.header.elements);
  }
}

void measure_once(const codec::Recipe& recipe, const CodecOptions& options, Inputs& inputs,
                  Arena& arena, Measurement& best) {
  const std::size_t count = element_count(options);
  const std::span<const float> input = inputs.next(count);
  const std::span<const float> other = inputs.next(count);
  double input_energy = 0;
  double residual_energy = 0;
  const double pass_seconds = seconds_of([&] { pass(arena.yardstick.span(), other); });
  const double encode_seconds = seconds_of([&] {
    encode_tensor(recipe, input, options.chunk_kib << 8, arena, input_energy, residual_energy);
  });
  const double decode_seconds =
      seconds_of([&] { decode_tensor(arena, arena.decoded.span(), codec::decode); });
  const double decode_add_seconds =
      seconds_of([&] { decode_tensor(arena, arena.sums.span(), codec::decode_add); });
  best.pass_seconds = std::min(best.pass_seconds, pass_seconds);
  best.encode_seconds = std::min(best.encode_seconds, encode_seconds);
  best.decode_seconds = std::min(best.decode_seconds, decode_seconds);
  best.decode_add_seconds = std::min(best.decode_add_seconds, decode_add_seconds);
  // The last iteration's: the residual is then the nearest to its steady state.
  std::size_t bytes = 0;
  for (const Block& block : arena.blocks) bytes += wire::kBlockHeaderBytes + block.payload.size();
  best.compression = static_cast<double>(4 * input.size()) / static_cast<double>(bytes);
  best.residual_over_input = input_energy > 0 ? residual_energy / input_energy : 0.0;
}

Measurement measure(const std::string& recipe_text, const codec::Recipe& recipe,
                    const std::string& target, const CodecOptions& options, Inputs& inputs,
                    Arena& arena) {
  Measurement best;
  best.recipe = recipe_text;
  best.target = target;
  TERN_CHECK(codec::force_target(target));
  std::ranges::fill(arena.residual.span(), 0.0f);
  for (std::size_t i = 0; i < options.iterations; ++i) {
    measure_once(recipe, options, inputs, arena, best);
  }
  codec::force_target("auto");
  best.encode_ratio = best.pass_seconds / best.encode_seconds;
  best.decode_ratio = best.pass_seconds / best.decode_seconds;
  best.decode_add_ratio = best.pass_seconds / best.decode_add_seconds;
  return best;
}

std::string scale_text(const codec::Recipe& recipe) {
  if (recipe.compressor != codec::Compressor::threelc) return "-";
  return recipe.scale_elements == 0 ? "tensor" : std::to_string(recipe.scale_elements);
}

void print_heading() {
  fmt::print("GB/s of f32; x is the ratio to the pass e[i] += x[i] of the same run\n");
  fmt::print("{:<34} {:>7} {:>7} {:>6} {:>7} {:>5} {:>7} {:>5} {:>7} {:>5} {:>7} {:>9}\n", "recipe",
             "scale", "target", "pass", "encode", "x", "decode", "x", "dec_add", "x", "ratio",
             "res/input");
}

void print_row(const Measurement& row, const codec::Recipe& recipe, double gigabytes) {
  fmt::print(
      "{:<34} {:>7} {:>7} {:>6.1f} {:>7.2f} {:>5.2f} {:>7.2f} {:>5.2f} {:>7.2f} {:>5.2f} {:>7.2f} "
      "{:>9.4g}\n",
      row.recipe, scale_text(recipe), row.target, gigabytes / row.pass_seconds,
      gigabytes / row.encode_seconds, row.encode_ratio, gigabytes / row.decode_seconds,
      row.decode_ratio, gigabytes / row.decode_add_seconds, row.decode_add_ratio, row.compression,
      row.residual_over_input);
}

nlohmann::json json_row(const Measurement& row, const codec::Recipe& recipe, double gigabytes) {
  return {{"recipe", codec::canonical_text(recipe)},
          {"scale", scale_text(recipe)},
          {"target", row.target},
          {"pass_gb_per_s", gigabytes / row.pass_seconds},
          {"encode_gb_per_s", gigabytes / row.encode_seconds},
          {"encode_ratio", row.encode_ratio},
          {"decode_gb_per_s", gigabytes / row.decode_seconds},
          {"decode_ratio", row.decode_ratio},
          {"decode_add_gb_per_s", gigabytes / row.decode_add_seconds},
          {"decode_add_ratio", row.decode_add_ratio},
          {"compression_ratio", row.compression},
          {"residual_energy_over_input_energy", row.residual_over_input}};
}

template <typename T>
T value_or_exit(Result<T> result) {
  if (!result) {
    fmt::print(stderr, "{}\n", result.error().text);
    throw CLI::RuntimeError(1);
  }
  return std::move(*result);
}

void run_codec(const CodecOptions& options) {
  std::vector<std::string> targets = options.targets;
  if (targets.empty()) {
    for (const auto name : codec::supported_targets()) targets.emplace_back(name);
  }
  for (const std::string& target : targets) {
    if (!codec::force_target(target)) {
      fmt::print(stderr, "this machine has no target {}\n", target);
      throw CLI::RuntimeError(1);
    }
  }
  std::vector<codec::Recipe> recipes;
  for (const auto& text : options.recipes) {
    recipes.push_back(value_or_exit(codec::parse_recipe(text)));
  }
  std::vector<float> file_values;
  if (!options.input_file.empty()) file_values = value_or_exit(read_npy_f32(options.input_file));

  const std::size_t count = element_count(options);
  Inputs inputs(count, options.pools, options.seed, file_values);
  Arena arena(count);
  const double gigabytes = static_cast<double>(4 * count) * 1e-9;
  nlohmann::json rows = nlohmann::json::array();
  print_heading();
  for (std::size_t i = 0; i < recipes.size(); ++i) {
    for (const std::string& target : targets) {
      const Measurement row =
          measure(options.recipes[i], recipes[i], target, options, inputs, arena);
      print_row(row, recipes[i], gigabytes);
      rows.push_back(json_row(row, recipes[i], gigabytes));
    }
  }
  if (options.json_file.empty()) return;
  std::ofstream file(options.json_file);
  file << nlohmann::json{{"size_mib", options.size_mib},
                         {"chunk_kib", options.chunk_kib},
                         {"iterations", options.iterations},
                         {"seed", options.seed},
                         {"input", options.input_file.empty() ? "gaussian" : options.input_file},
                         {"rows", rows}}
              .dump(2)
       << "\n";
  if (!file) {
    fmt::print(stderr, "{} cannot be written\n", options.json_file);
    throw CLI::RuntimeError(1);
  }
}

}  // namespace

void add_codec_command(CLI::App& app) {
  auto options = std::make_shared<CodecOptions>();
  CLI::App* const command = app.add_subcommand("codec", "Speed, ratio and error of every recipe");
  command->add_option("--recipe", options->recipes, "Recipes to measure (default: a set of all)");
  command->add_option("--target", options->targets,
                      "Kernel targets (default: all of this machine)");
  command->add_option("--size-mib", options->size_mib, "Tensor size")->check(CLI::Range(1, 1024));
  command->add_option("--chunk-kib", options->chunk_kib, "Chunk size")->check(CLI::Range(1, 4096));
  command->add_option("--iterations", options->iterations, "Steps; the best time counts")
      ->check(CLI::PositiveNumber);
  command->add_option("--pools", options->pools, "Pools of inputs")->check(CLI::PositiveNumber);
  command->add_option("--seed", options->seed, "Of the Gaussian inputs");
  command->add_option("--input", options->input_file, "A .npy file of f32 instead of Gaussians");
  command->add_option("--json", options->json_file, "Also write the rows to this file");
  command->callback([options] { run_codec(*options); });
}

}  // namespace tern::bench
