#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "examples/train_mnist/mnist.h"
#include "examples/training/mlp.h"
#include "examples/training/task.h"

namespace tern::train_mnist {

using training::Matrix;

struct Batch {
  Matrix images;  // one row an image, normalised
  std::vector<std::uint8_t> labels;
};

// Images are moved by up to so many pixels in both directions, which stands in for more training
// data.
struct Shifts {
  int most = 0;
  std::uint64_t seed = 0;
};

// The rows of `indices`.
void fill_batch(const ImageSet& set, std::span<const std::uint32_t> indices, const Shifts& shifts,
                Batch* batch);

struct DigitsOptions {
  std::size_t batch = 32;
  std::uint64_t seed = 1;
  int max_shift = 1;  // pixels
  int rank = 0;
  int size = 1;
};

// A perceptron 784-256-256-10 that learns MNIST's digits.
class Digits : public training::Task {
 public:
  // Throws std::runtime_error when a step of all ranks takes more images than there are.
  Digits(DataSet data, const DigitsOptions& options);

  const std::vector<training::Parameter>& layout() const override { return layout_; }
  std::span<float> parameters() override { return parameters_; }
  void initialise(std::uint64_t seed) override { network_.initialise(seed); }
  float gradient(int step, std::span<float> gradients, const training::LayerReady& ready) override;
  double accuracy() override;

 private:
  std::span<const std::uint32_t> deal(int step);

  DataSet data_;
  DigitsOptions options_;
  std::vector<training::Parameter> layout_;
  std::vector<float> parameters_;
  training::Mlp network_;
  Batch batch_;
  std::size_t epoch_ = 0;
  std::vector<std::uint32_t> order_;  // of the images in this epoch
};

}  // namespace tern::train_mnist
