#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "examples/training/exchange.h"
#include "examples/training/task.h"

namespace tern::training {

// Stochastic gradient descent with momentum and weight decay.
struct DescentOptions {
  float momentum = 0.9F;
  float weight_decay = 1e-4F;
};

class Descent {
 public:
  // Of a model with so many parameters.
  Descent(const DescentOptions& options, std::size_t parameters)
      : options_(options), velocity_(parameters, 0.0F) {}

  // `values` are the parameters from `begin` on, and become the next ones.
  void step(std::size_t begin, float rate, std::span<const float> gradients,
            std::span<float> values);

 private:
  DescentOptions options_;
  std::vector<float> velocity_;
};

// How the gradients of one step of all ranks become the next parameters, alike on all of them.
class Update {
 public:
  virtual ~Update() = default;

  // The gradients of a layer are there.
  virtual void begin(std::size_t layer) = 0;
  // Returns when the parameters are the next ones.
  virtual void finish(float rate) = 0;
};

// Every rank gets the average of the gradients and descends by itself; or, where the exchange has a
// server, the owners do, and all add the differences that they send. An owner keeps the model that
// it descends on: what is lost of a difference is sent with later ones, and is no part of the model
// that gradients are computed with until then. REQUIRES: all ranks have the same parameters. Both
// outlive the result.
std::unique_ptr<Update> make_update(const DescentOptions& options, Task* task, Exchange* exchange);

}  // namespace tern::training
