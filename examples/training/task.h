#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "examples/training/mlp.h"
#include "examples/training/parameter.h"

namespace tern::training {

// A model and the data it learns from: what a program of these examples has of its own.
class Task {
 public:
  virtual ~Task() = default;

  virtual const std::vector<Parameter>& layout() const = 0;
  // All parameters, flat.
  virtual std::span<float> parameters() = 0;
  virtual void initialise(std::uint64_t seed) = 0;

  // The gradient of the loss on this rank's batch for `step`, from 0; returns the loss.
  // ready(layer) is called for each layer, the last one first.
  virtual float gradient(int step, std::span<float> gradients, const LayerReady& ready) = 0;

  // Share of the test set that is right, 0 .. 1.
  virtual double accuracy() = 0;
};

}  // namespace tern::training
