#pragma once

#include <cstdint>
#include <vector>

#include "examples/training/exchange.h"
#include "examples/training/recorder.h"
#include "examples/training/task.h"
#include "examples/training/update.h"

namespace tern::training {

struct TrainOptions {
  int steps = 800;
  int batch = 32;  // examples a rank and step
  std::uint64_t seed = 1;
  int warm_up_steps = 100;
  float peak_rate = 0.1F;
  float last_rate = 0.001F;
  DescentOptions descent;
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
  float first_loss = 0.0F;              // of this rank's batches
  float last_loss = 0.0F;
  bool weights_agree = false;
  std::uint64_t weights_checksum = 0;
};

// Linear from 0 to the peak, then half a cosine down to the last rate.
float learning_rate(const TrainOptions& options, int step);

// One of those who train together.
struct Worker {
  int rank;
  Task* task;
  Exchange* exchange;
  const Recorder& recorder;
};

// Trains together with the other ranks of the exchange. Throws tern::Failure when the exchange
// fails, std::runtime_error when the training or the recording does.
TrainReport train(const TrainOptions& options, const Worker& worker);

}  // namespace tern::training
