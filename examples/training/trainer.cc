#include "examples/training/trainer.h"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <numbers>
#include <stdexcept>

namespace tern::training {
namespace {

using SteadyClock = std::chrono::steady_clock;

double seconds_since(SteadyClock::time_point begin) {
  return std::chrono::duration<double>(SteadyClock::now() - begin).count();
}

void print_progress(const TrainOptions& options, int done, const TrainReport& report,
                    double seconds) {
  const double accuracy = report.accuracy.empty() ? 0.0 : report.accuracy.back().accuracy;
  std::printf("step %d of %d loss %.4f accuracy %.2f seconds %.2f\n", done, options.steps,
              static_cast<double>(report.last_loss), 100.0 * accuracy, seconds);
  std::fflush(stdout);
}

}  // namespace

float learning_rate(const TrainOptions& options, int step) {
  if (step < options.warm_up_steps) {
    return options.peak_rate * static_cast<float>(step + 1) /
           static_cast<float>(options.warm_up_steps);
  }
  const float through = static_cast<float>(step - options.warm_up_steps) /
                        static_cast<float>(options.steps - options.warm_up_steps);
  const float share = 0.5F * (1.0F + std::cos(std::numbers::pi_v<float> * through));
  return options.last_rate + (options.peak_rate - options.last_rate) * share;
}

TrainReport train(const TrainOptions& options, const Worker& worker) {
  const auto& [rank, task, exchange, recorder] = worker;
  const std::span<float> parameters = task->parameters();
  if (rank == 0) {
    task->initialise(options.seed);
  }
  exchange->broadcast(parameters);
  const std::unique_ptr<Update> update = make_update(options.descent, task, exchange);

  TrainReport report;
  double trained_seconds = 0.0;
  recorder.weights(1, parameters);
  exchange->barrier();
  for (int step = 0; step < options.steps; ++step) {
    const auto begin = SteadyClock::now();
    const std::span<float> gradients = exchange->gradients();
    const float loss = task->gradient(step, gradients, [&](std::size_t layer) {
      worker.recorder.gradients(step + 1, layer, gradients);
      update->begin(layer);
    });
    update->finish(learning_rate(options, step));
    report.step_seconds.push_back(seconds_since(begin));
    trained_seconds += report.step_seconds.back();

    const int done = step + 1;
    if (!std::isfinite(loss)) {
      throw std::runtime_error("the loss is not finite at step " + std::to_string(done));
    }
    if (step == 0) report.first_loss = loss;
    report.last_loss = loss;
    recorder.weights(done + 1, parameters);
    const bool evaluate = done % options.evaluate_every == 0 || done == options.steps;
    if (evaluate && rank == 0) {
      report.accuracy.push_back({done, trained_seconds, task->accuracy()});
    }
    if (options.progress && (evaluate || done % 10 == 0)) {
      print_progress(options, done, report, trained_seconds);
    }
    if (evaluate) {
      // The others wait here and not in the next step, whose time would otherwise be the
      // evaluation's.
      exchange->barrier();
    }
  }
  report.weights_checksum = checksum(parameters);
  report.weights_agree = exchange->agree(parameters);
  return report;
}

}  // namespace tern::training
