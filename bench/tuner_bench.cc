#include "bench/tuner_bench.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "bench/codec_options.h"
#include "bench/tuner_report.h"
#include "bench/tuner_scenario.h"

namespace tern::bench {
namespace {

struct TunerOptions {
  ScenarioOptions scenario;
  std::vector<std::string> levels = {"lossless", "conservative", "balanced", "aggressive"};
  bool kind = false;
  std::string samples = "bench/data/tuner_samples.json";
  std::string json_file;
};

void run_tuner(TunerOptions options) {
  options.scenario.levels.clear();
  for (const std::string& name : options.levels) {
    const auto level = tuner::parse_level(name);
    if (!level) {
      give_up("--level " + name + ": it is lossless, conservative, balanced or aggressive");
    }
    options.scenario.levels.push_back(*level);
  }
  options.scenario.hostile = !options.kind;
  const TunerSamples samples = value_or_exit(read_tuner_samples(options.samples));
  const auto results = run_scenarios(samples, options.scenario);
  if (results.empty()) give_up("no trace has one of these names");
  fmt::print("{}", tuner_table(results));
  if (!options.json_file.empty()) {
    write_json(options.json_file, tuner_json(results, options.scenario));
  }
}

}  // namespace

void add_tuner_command(CLI::App& app) {
  auto options = std::make_shared<TunerOptions>();
  CLI::App* const command =
      app.add_subcommand("tuner", "The tuner in a simulated world, and what others make of it");
  command->add_option("--level", options->levels, "Of lossless, conservative, balanced, aggressive");
  command->add_flag("--kind", options->kind,
                    "Lanes and codecs cost what the tuner assumes, and nodes measure well");
  command->add_option("--bytes", options->scenario.bytes, "Sizes of the tensor")
      ->check(CLI::PositiveNumber);
  command->add_option("--ops", options->scenario.ops, "Operations of each run")
      ->check(CLI::Range(100, 1000000));
  command->add_option("--seed", options->scenario.first_seed, "Of noise and links");
  command->add_option("--seeds", options->scenario.seeds, "So many from --seed on")
      ->check(CLI::PositiveNumber);
  command->add_option("--trace", options->scenario.traces, "Only these, by the names in the table");
  command->add_option("--samples", options->samples,
                      "What was recorded (tern-bench tuner-samples)");
  command->add_option("--json", options->json_file,
                      "Also write the rows, and the course of each, to this file");
  command->callback([options] { run_tuner(*options); });
}

}  // namespace tern::bench
