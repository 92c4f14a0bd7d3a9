#include "examples/train_mnist/trainer.h"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <numbers>
#include <stdexcept>

#include "examples/train_mnist/mlp.h"
#include "examples/train_mnist/random.h"

namespace tern::train_mnist {
namespace {

using SteadyClock = std::chrono::steady_clock;

double seconds_since(SteadyClock::time_point begin) {
  return std::chrono::duration<double>(SteadyClock::now() - begin).count();
}

// Deals the training images out: every epoch in another order, the same on all ranks, every image
// to one rank. What does not fill a step of all ranks is left out of the epoch.
class Dealer {
 public:
  Dealer(std::size_t images, const TrainOptions& options, int rank, int size)
      : images_(images),
        batch_(static_cast<std::size_t>(options.batch)),
        step_images_(batch_ * static_cast<std::size_t>(size)),
        offset_(batch_ * static_cast<std::size_t>(rank)),
        seed_(options.seed) {
    if (step_images_ > images_) {
      throw std::runtime_error("a step takes more images than there are; use a smaller --batch");
    }
  }

  std::span<const std::uint32_t> deal(int step) {
    const std::size_t steps_per_epoch = images_ / step_images_;
    const std::size_t epoch = static_cast<std::size_t>(step) / steps_per_epoch;
    if (order_.empty() || epoch != epoch_) {
      epoch_ = epoch;
      order_ = Random(seed_ * 1000003U + epoch).permutation(images_);
    }
    const std::size_t within = static_cast<std::size_t>(step) % steps_per_epoch;
    return std::span<const std::uint32_t>(order_).subspan(within * step_images_ + offset_, batch_);
  }

 private:
  std::size_t images_;
  std::size_t batch_;
  std::size_t step_images_;
  std::size_t offset_;
  std::uint64_t seed_;
  std::size_t epoch_ = 0;
  std::vector<std::uint32_t> order_;
};

// Stochastic gradient descent with momentum and weight decay, on the parameters of one layer.
void descend(const TrainOptions& options, float rate, std::size_t layer,
             std::span<const float> gradients, std::span<float> velocity,
             std::span<float> parameters) {
  const std::size_t begin = kParameters[2 * layer].offset;
  const std::size_t end = kParameters[2 * layer + 1].offset + kParameters[2 * layer + 1].count();
  for (std::size_t i = begin; i < end; ++i) {
    velocity[i] =
        options.momentum * velocity[i] + gradients[i] + options.weight_decay * parameters[i];
    parameters[i] -= rate * velocity[i];
  }
}

void print_progress(const TrainOptions& options, int done, float loss, const TrainReport& report,
                    double seconds) {
  const double accuracy = report.accuracy.empty() ? 0.0 : report.accuracy.back().accuracy;
  std::printf("step %d of %d loss %.4f accuracy %.2f seconds %.2f\n", done, options.steps,
              static_cast<double>(loss), 100.0 * accuracy, seconds);
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

TrainReport train(const TrainOptions& options, const DataSet& data, int rank, int size,
                  Exchange* exchange) {
  std::vector<float> parameters(kParameterCount);
  std::vector<float> velocity(kParameterCount, 0.0F);
  Mlp network(parameters);
  if (rank == 0) {
    network.initialise(options.seed);
  }
  exchange->broadcast(parameters);

  TrainReport report;
  Dealer dealer(data.train.count(), options, rank, size);
  Batch batch;
  double trained_seconds = 0.0;
  exchange->barrier();
  for (int step = 0; step < options.steps; ++step) {
    const auto begin = SteadyClock::now();
    const std::uint64_t shift_seed =
        (options.seed << 32) + static_cast<std::uint64_t>(step) * static_cast<std::uint64_t>(size) +
        static_cast<std::uint64_t>(rank);
    fill_batch(data.train, dealer.deal(step), options.max_shift, shift_seed, &batch);
    const float loss = network.gradient(batch, exchange->gradients(),
                                        [&](std::size_t layer) { exchange->begin(layer); });
    const float rate = learning_rate(options, step);
    for (std::size_t layer = kLayers; layer-- > 0;) {
      exchange->wait(layer);
      descend(options, rate, layer, exchange->gradients(), velocity, parameters);
    }
    report.step_seconds.push_back(seconds_since(begin));
    trained_seconds += report.step_seconds.back();

    const int done = step + 1;
    if (!std::isfinite(loss)) {
      throw std::runtime_error("the loss is not finite at step " + std::to_string(done));
    }
    const bool evaluate = done % options.evaluate_every == 0 || done == options.steps;
    if (evaluate && rank == 0) {
      report.accuracy.push_back({done, trained_seconds, network.accuracy(data.test)});
    }
    if (options.progress && (evaluate || done % 10 == 0)) {
      print_progress(options, done, loss, report, trained_seconds);
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

}  // namespace tern::train_mnist
