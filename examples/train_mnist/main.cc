// Data-parallel training of a small perceptron on MNIST: one process a rank, gradients averaged by
// Tern while the back-propagation of the layers below goes on.
//
//   train_mnist --rank 0 --size 2 --group-id-file /tmp/group --recipe 3lc:s=1 &
//   train_mnist --rank 1 --size 2 --group-id-file /tmp/group --recipe 3lc:s=1

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "examples/train_mnist/exchange.h"
#include "examples/train_mnist/trainer.h"

namespace tern::train_mnist {
namespace {

constexpr int kWeightsDiffer = 3;

struct ProgramOptions {
  ExchangeOptions exchange;
  TrainOptions train;
  std::string data = TRAIN_MNIST_DATA;
  std::string result;
  double timeout_seconds = 60.0;
};

void describe(CLI::App* app, ProgramOptions* options) {
  ExchangeOptions& exchange = options->exchange;
  TrainOptions& train = options->train;
  app->add_option("--rank", exchange.rank, "This process's rank, from 0")->required();
  app->add_option("--size", exchange.size, "How many ranks there are")
      ->required()
      ->check(CLI::Range(1, 1024));
  app->add_option("--group-id-file", exchange.group_id_file, "Rank 0 writes the group id there")
      ->required();
  app->add_option("--socket", exchange.socket, "ternd's socket; default $TERN_SOCKET");
  app->add_option("--recipe", exchange.recipe, "raw, 3lc:s=1, auto ...; default: the daemon's");
  app->add_option("--timeout", options->timeout_seconds, "Seconds to wait for other ranks")
      ->check(CLI::Range(1.0, 3600.0));
  app->add_option("--data", options->data, "Folder with MNIST's files, *-ubyte.gz");
  app->add_option("--steps", train.steps)->check(CLI::Range(1, 10000000));
  app->add_option("--batch", train.batch, "Images a rank and step")->check(CLI::Range(1, 10000));
  app->add_option("--seed", train.seed);
  app->add_option("--warm-up", train.warm_up_steps, "Steps with a growing learning rate")
      ->check(CLI::Range(0, 10000000));
  app->add_option("--rate", train.peak_rate, "Peak learning rate");
  app->add_option("--evaluate-every", train.evaluate_every, "Steps")
      ->check(CLI::Range(1, 10000000));
  app->add_option("--result", options->result, "Write a report there, as JSON");
  app->add_flag("--progress", train.progress, "Print a line every 10 steps");
}

void write_report(const ProgramOptions& options, const Exchange& exchange,
                  const TrainReport& report) {
  const double steps = options.train.steps;
  const double seconds =
      std::accumulate(report.step_seconds.begin(), report.step_seconds.end(), 0.0);
  nlohmann::json json = {
      {"recipe", options.exchange.recipe},
      {"rank", options.exchange.rank},
      {"size", options.exchange.size},
      {"node", exchange.info().node},
      {"steps", options.train.steps},
      {"batch", options.train.batch},
      {"seed", options.train.seed},
      {"step_ms", 1e3 * seconds / steps},
      {"step_seconds", report.step_seconds},
      {"wire_bytes_per_step", static_cast<double>(exchange.bytes_sent()) / steps},
      {"raw_bytes_per_step", static_cast<double>(exchange.bytes_raw()) / steps},
      {"weights_agree", report.weights_agree},
      {"weights_checksum", report.weights_checksum},
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

int run(const ProgramOptions& options) {
  const DataSet data = load_data_set(options.data);
  Exchange exchange(options.exchange);
  const TrainReport report =
      train(options.train, data, options.exchange.rank, options.exchange.size, &exchange);
  if (!options.result.empty()) {
    write_report(options, exchange, report);
  }
  if (!report.weights_agree) {
    std::fprintf(stderr, "train_mnist: rank %d: the ranks' weights differ\n",
                 options.exchange.rank);
    return kWeightsDiffer;
  }
  if (options.exchange.rank == 0) {
    std::printf("test accuracy %.2f %%, weights identical on all ranks\n",
                100.0 * report.accuracy.back().accuracy);
  }
  exchange.leave_together();
  return 0;
}

}  // namespace
}  // namespace tern::train_mnist

int main(int argc, char** argv) {
  tern::train_mnist::ProgramOptions options;
  CLI::App app("Data-parallel training on MNIST, gradients averaged by Tern");
  tern::train_mnist::describe(&app, &options);
  CLI11_PARSE(app, argc, argv);
  options.exchange.timeout_ms = static_cast<std::int64_t>(options.timeout_seconds * 1e3);
  if (options.exchange.rank < 0 || options.exchange.rank >= options.exchange.size) {
    std::fprintf(stderr, "train_mnist: --rank must be from 0 to --size less 1\n");
    return 2;
  }
  try {
    return tern::train_mnist::run(options);
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "train_mnist: rank %d: %s\n", options.exchange.rank, failure.what());
    return 1;
  }
}
