// The commands about codecs: their options.
#include "bench/codec_bench.h"

#include <CLI/CLI.hpp>
#include <fstream>
#include <iterator>
#include <memory>

#include "bench/codebook_bench.h"
#include "bench/codec_options.h"
#include "bench/codec_stream.h"
#include "codec/entropy/codebook.h"
#include "codec/target/target.h"

namespace tern::bench {
namespace {

const std::vector<std::string> kUsualRecipes = {"raw",
                                                "bf16",
                                                "ef(bf16)",
                                                "3lc:s=1",
                                                "3lc:s=1.75",
                                                "3lc:s=1,scale=16384",
                                                "3lc:s=1.75,scale=16384",
                                                "3lc:s=1,scale=65536",
                                                "3lc:s=1,scale=tensor",
                                                "3lc:s=1,zrun=off"};

void install_books(const CodecOptions& options) {
  std::vector<codec::entropy::Codebook> books;
  for (const std::string& path : options.codebooks) {
    std::ifstream file(path, std::ios::binary);
    if (!file) give_up(path + ": cannot be opened");
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    books.push_back(value_or_exit(codec::entropy::parse_codebook(text)));
  }
  const auto installed = codec::entropy::install_codebooks(std::move(books));
  if (!installed) give_up(installed.error().text);
}

void run_codec(CodecOptions options) {
  for (std::string& target : options.targets) {
    if (!codec::target::force(target)) give_up("this machine has no target " + target);
    target = codec::target::name();  // which one `auto` is here
  }
  codec::target::force("auto");
  install_books(options);
  if (options.recipes.empty()) options.recipes = kUsualRecipes;
  const std::vector<codec::Recipe> recipes = parse_recipes(options);
  if (options.inputs.empty()) {
    run_synthetic(options, recipes);
  } else {
    run_files(options, recipes);
  }
}

}  // namespace

std::vector<codec::Recipe> parse_recipes(const CodecOptions& options) {
  std::vector<codec::Recipe> recipes;
  for (const std::string& text : options.recipes) {
    recipes.push_back(value_or_exit(codec::parse_recipe(text)));
    if (const auto why = why_unavailable(recipes.back())) give_up(text + ": " + *why);
  }
  return recipes;
}

void write_json(const std::string& path, const nlohmann::json& json) {
  std::ofstream file(path);
  file << json.dump(2) << "\n";
  file.close();
  if (!file) give_up(path + " cannot be written");
}

void add_codec_command(CLI::App& app) {
  auto options = std::make_shared<CodecOptions>();
  CLI::App* const command = app.add_subcommand("codec", "Speed, ratio and error of every recipe");
  command->add_option("--recipe", options->recipes, "Recipes to measure (default: a set of all)");
  command->add_option("--target", options->targets,
                      "Kernel targets (default: all of this machine, or its best with --input)");
  command->add_option("--size-mib", options->size_mib, "Tensor whose time is taken")
      ->check(CLI::Range(1, 1024));
  command->add_option("--chunk-kib", options->chunk_kib, "Chunk size")->check(CLI::Range(1, 4096));
  command->add_option("--iterations", options->iterations, "Times taken; the best counts")
      ->check(CLI::PositiveNumber);
  command->add_option("--pools", options->pools, "Pools of Gaussian inputs")
      ->check(CLI::PositiveNumber);
  command->add_option("--seed", options->seed, "Of the Gaussian inputs and of random rounding");
  command->add_option("--input", options->inputs,
                      "Files instead of Gaussians, .npy or raw: one tensor at successive steps");
  command->add_option("--dtype", options->dtype, "f32, f16 or bf16: what raw files hold");
  command->add_option("--steps", options->steps,
                      "With --input: values that are sent, the files over and over (default: each "
                      "once, and at least 16 for recipes with memory)");
  command->add_option("--codebook", options->codebooks, "Codebooks that recipes may name");
  command->add_option("--json", options->json_file, "Also write the rows to this file");
  command->callback([options] { run_codec(*options); });
}

void add_codebook_command(CLI::App& app) {
  auto options = std::make_shared<CodebookOptions>();
  CLI::App* const command =
      app.add_subcommand("codebook", "Trains a static Huffman codebook on recorded tensors");
  command->add_option("--recipe", options->recipe, "Whose codes, for example ef(lloyd:bits=4)")
      ->required();
  command->add_option("--input", options->inputs, "One tensor at successive steps, .npy or raw")
      ->required();
  command->add_option("--dtype", options->dtype, "f32, f16 or bf16: what raw files hold");
  command->add_option("--chunk-kib", options->chunk_kib, "Chunk size")->check(CLI::Range(1, 4096));
  command->add_option("--name", options->name, "Of the codebook")->required();
  command->add_option("--out", options->out, "File to write")->required();
  command->callback([options] { train_codebook_file(*options); });
}

}  // namespace tern::bench
