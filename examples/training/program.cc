#include "examples/training/program.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <stdexcept>

namespace tern::training {
namespace {

constexpr int kWeightsDiffer = 3;
constexpr int kWrongUse = 2;

void describe(CLI::App* app, ProgramOptions* options) {
  ExchangeOptions& exchange = options->exchange;
  TrainOptions& train = options->train;
  app->add_option("--rank", exchange.rank, "This process's rank, from 0");
  app->add_option("--size", exchange.size, "How many ranks there are")->check(CLI::Range(1, 1024));
  app->add_option("--group-id-file", exchange.group_id_file, "Rank 0 writes the group id there");
  app->add_flag("--local", exchange.local, "One process, without a daemon");
  app->add_option("--socket", exchange.socket, "ternd's socket; default $TERN_SOCKET");
  app->add_option("--recipe", exchange.recipe, "raw, 3lc:s=1, auto ...; default: the daemon's");
  app->add_flag("--client-blocks", exchange.client_blocks,
                "Encode and decode here, and not in the daemon: one rank on each node");
  app->add_flag("--server", exchange.server,
                "Ranks keep the model: gradients are pushed to them, its differences pulled");
  app->add_option("--server-rank", exchange.server_rank,
                  "With --server: the rank that keeps all of it; default: every rank keeps a part");
  app->add_option("--pull-recipe", exchange.pull_recipe,
                  "With --server: of the differences; default: as --recipe");
  app->add_option("--timeout", options->timeout_seconds, "Seconds to wait for other ranks")
      ->check(CLI::Range(1.0, 3600.0));
  app->add_option("--data", options->data, options->data_help);
  app->add_option("--steps", train.steps)->check(CLI::Range(1, 10000000));
  app->add_option("--batch", train.batch, "Examples a rank and step")->check(CLI::Range(1, 10000));
  app->add_option("--seed", train.seed);
  app->add_option("--warm-up", train.warm_up_steps, "Steps with a growing learning rate")
      ->check(CLI::Range(0, 10000000));
  app->add_option("--rate", train.peak_rate, "Peak learning rate");
  app->add_option("--evaluate-every", train.evaluate_every, "Steps")
      ->check(CLI::Range(1, 10000000));
  app->add_option("--result", options->result, "Write a report there, as JSON");
  app->add_option("--record", options->record_folder,
                  "Rank 0 writes gradients and weights there, a .npy file a tensor and step");
  app->add_option("--record-steps", options->record_steps,
                  "Which, from 1: 1,10,100-115; default 1, 10, 100 ...");
  app->add_flag("--progress", train.progress, "Print a line every 10 steps");
}

// Null, or what is wrong.
const char* objection(const ProgramOptions& options) {
  const ExchangeOptions& exchange = options.exchange;
  if (exchange.rank < 0 || exchange.rank >= exchange.size) {
    return "--rank must be from 0 to --size less 1";
  }
  if (exchange.local && exchange.size != 1) return "--local is for one process: --size 1";
  if (!exchange.local && exchange.group_id_file.empty()) {
    return "--group-id-file is required (or --local: one process, no daemon)";
  }
  if (exchange.client_blocks && (exchange.server || exchange.local)) {
    return "--client-blocks is neither for --server nor for --local";
  }
  if (exchange.server && exchange.local) return "--server needs a daemon: leave out --local";
  if (!exchange.server && (exchange.server_rank != -1 || !exchange.pull_recipe.empty())) {
    return "--server-rank and --pull-recipe need --server";
  }
  if (exchange.server_rank < -1 || exchange.server_rank >= exchange.size) {
    return "--server-rank must be from 0 to --size less 1";
  }
  if (options.record_folder.empty() && !options.record_steps.empty()) {
    return "--record-steps needs --record FOLDER";
  }
  return nullptr;
}

void write_report(const ProgramOptions& options, const Exchange& exchange,
                  const TrainReport& report) {
  const double steps = options.train.steps;
  const double seconds =
      std::accumulate(report.step_seconds.begin(), report.step_seconds.end(), 0.0);
  nlohmann::json json = {
      {"recipe", options.exchange.recipe},
      {"server", options.exchange.server},
      {"client_blocks", options.exchange.client_blocks},
      {"pull_recipe", options.exchange.pull_recipe},
      {"rank", options.exchange.rank},
      {"size", options.exchange.size},
      {"node", exchange.node()},
      {"steps", options.train.steps},
      {"batch", options.train.batch},
      {"seed", options.train.seed},
      {"step_ms", 1e3 * seconds / steps},
      {"step_seconds", report.step_seconds},
      {"wire_bytes_per_step", static_cast<double>(exchange.bytes_sent()) / steps},
      {"raw_bytes_per_step", static_cast<double>(exchange.bytes_raw()) / steps},
      {"weights_agree", report.weights_agree},
      {"weights_checksum", report.weights_checksum},
      {"first_loss", report.first_loss},
      {"last_loss", report.last_loss},
      {"accuracy", nlohmann::json::array()},
  };
  for (const AccuracyPoint& point : report.accuracy) {
    json["accuracy"].push_back(
        {{"step", point.step}, {"seconds", point.seconds}, {"test_accuracy", point.accuracy}});
  }
  if (!report.accuracy.empty()) {
    json["test_accuracy"] = report.accuracy.back().accuracy;
  }
  std::ofstream file(options.result);
  file << json.dump(1) << '\n';
  file.close();
  if (!file) {
    throw std::runtime_error("cannot write " + options.result);
  }
}

int run(const ProgramOptions& options, Task* task) {
  const int rank = options.exchange.rank;
  const Recorder recorder(rank == 0 ? options.record_folder : "",
                          parse_record_steps(options.record_steps, options.train.steps),
                          task->layout());
  const auto exchange = make_exchange(options.exchange, task->layout());
  const TrainReport report = train(options.train, {rank, task, exchange.get(), recorder});
  if (!options.result.empty()) {
    write_report(options, *exchange, report);
  }
  if (!report.weights_agree) {
    std::fprintf(stderr, "%s: rank %d: the ranks' weights differ\n", options.name.c_str(), rank);
    return kWeightsDiffer;
  }
  if (rank == 0) {
    std::printf("test accuracy %.2f %%%s\n", 100.0 * report.accuracy.back().accuracy,
                options.exchange.local ? "" : ", weights identical on all ranks");
  }
  exchange->leave_together();
  return 0;
}

}  // namespace

int run_program(int argc, char** argv, ProgramOptions options,
                const std::function<std::unique_ptr<Task>(const ProgramOptions&)>& make_task) {
  CLI::App app(options.description);
  describe(&app, &options);
  CLI11_PARSE(app, argc, argv);
  options.exchange.job = options.name;
  options.exchange.timeout_ms = static_cast<std::int64_t>(options.timeout_seconds * 1e3);
  if (const char* wrong = objection(options)) {
    std::fprintf(stderr, "%s: %s\n", options.name.c_str(), wrong);
    return kWrongUse;
  }
  try {
    const std::unique_ptr<Task> task = make_task(options);
    return run(options, task.get());
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "%s: rank %d: %s\n", options.name.c_str(), options.exchange.rank,
                 failure.what());
    return 1;
  }
}

}  // namespace tern::training
