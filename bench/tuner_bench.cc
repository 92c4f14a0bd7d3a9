#include "bench/tuner_bench.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <map>
#include <memory>

#include "bench/codec_options.h"
#include "bench/tuner_report.h"
#include "bench/tuner_scenario.h"

namespace tern::bench {
namespace {

struct TunerOptions {
  ScenarioOptions scenario;
  std::vector<std::string> levels = {"lossless", "conservative", "balanced", "aggressive"};
  std::vector<std::string> settings;
  bool kind = false;
  std::string samples = "bench/data/tuner_samples.json";
  std::string json_file;
};

// What a policy may be tried with, by the names of tuner::PolicySettings.
void set_policy(tuner::PolicySettings& policy, const std::string& setting) {
  const std::size_t equals = setting.find('=');
  const std::string name = setting.substr(0, equals);
  const double value = equals == std::string::npos ? 0.0 : std::atof(setting.c_str() + equals + 1);
  tuner::SwitchSettings& switches = policy.switches;
  const std::map<std::string, double*> numbers = {{"gain", &switches.gain},
                                                  {"gain_of_raw", &switches.gain_of_raw},
                                                  {"great_gain", &switches.great_gain},
                                                  {"great_loss", &switches.great_loss},
                                                  {"weight", &switches.weight},
                                                  {"weight_of_raw", &switches.weight_of_raw},
                                                  {"beyond_raw", &policy.beyond_raw},
                                                  {"restless", &policy.restless},
                                                  {"looking", &policy.looking},
                                                  {"looking_at_first", &policy.looking_at_first},
                                                  {"untried_doubt", &policy.untried_doubt},
                                                  {"tried_doubt", &policy.tried_doubt},
                                                  {"doubt_half_life", &policy.doubt_half_life}};
  const std::map<std::string, std::uint32_t*> counts = {
      {"first_ops", &switches.first_ops},   {"free_ops", &switches.free_ops},
      {"dwell", &switches.dwell},           {"great_for", &switches.great_for},
      {"trial_every", &policy.trial_every}, {"probe_every", &policy.probe_every},
      {"calm_after", &policy.calm_after},   {"uses_kept", &policy.uses_kept},
      {"raw_checks", &policy.raw_checks},   {"check_every", &policy.check_every}};
  if (const auto number = numbers.find(name); number != numbers.end()) {
    *number->second = value;
  } else if (const auto count = counts.find(name); count != counts.end()) {
    *count->second = static_cast<std::uint32_t>(value);
  } else if (name == "legs_apart") {
    policy.legs_apart = value != 0.0;
  } else {
    give_up("--set " + setting + ": the policy has no such setting");
  }
}

void run_tuner(TunerOptions options) {
  for (const std::string& one : options.settings) {
    set_policy(options.scenario.settings.policy, one);
  }
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
  command->add_option("--level", options->levels,
                      "Of lossless, conservative, balanced, aggressive");
  command->add_option("--set", options->settings,
                      "NAME=VALUE of the policy's settings, to see what it makes of them");
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
