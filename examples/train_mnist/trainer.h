#pragma once

#include <cstdint>
#include <vector>

#include "examples/train_mnist/exchange.h"
#include "examples/train_mnist/mnist.h"

namespace tern::train_mnist {

// The defaults reach 97 % on the built-in images, raw and with 3LC.
struct TrainOptions {
  int steps = 800;
  int batch = 32;  // images a rank and step
  std::uint64_t seed = 1;
  int warm_up_steps = 100;
  float peak_rate = 0.1F;
  float last_rate = 0.001F;
  float momentum = 0.9F;
  float weight_decay = 1e-4F;
  int max_shift = 1;  // pixels
  int evaluate_every = 50;
  bool progress = false;
};

struct AccuracyPoint {
  int step;
  double seconds;  // of training; evaluation is not counted
  double accuracy;
};

struct TrainReport {
  std::vector<double> step_seconds;
  std::vector<AccuracyPoint> accuracy;  // rank 0 only
  bool weights_agree = false;
  std::uint64_t weights_checksum = 0;
};

// Linear from 0 to the peak, then half a cosine down to the last rate.
float learning_rate(const TrainOptions& options, int step);

// Trains on this rank's share of the images, together with the other ranks of the exchange. Throws
// tern::Failure when the exchange fails, std::runtime_error when the training does.
TrainReport train(const TrainOptions& options, const DataSet& data, int rank, int size,
                  Exchange* exchange);

}  // namespace tern::train_mnist
