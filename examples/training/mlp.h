#pragma once

#include <Eigen/Core>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "examples/training/parameter.h"

namespace tern::training {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using MatrixMap = Eigen::Map<Matrix>;

// Called when the gradients of a layer are complete.
using LayerReady = std::function<void(std::size_t layer)>;

MatrixMap map_of(const Parameter& parameter, std::span<float> flat);

// Appends layerN.weight and layerN.bias for each pair of neighbours in `widths`.
void append_mlp(std::span<const std::size_t> widths, std::vector<Parameter>* parameters);

// A batch: one row an example, and what each should be taken for.
struct Examples {
  const Matrix& input;
  std::span<const std::uint8_t> labels;
};

// A perceptron with rectified units and softmax cross-entropy. The parameters live in memory of the
// caller; one object holds the activations of one batch.
class Mlp {
 public:
  // `layout` is what append_mlp has appended; `parameters` are all parameters of the model.
  Mlp(std::vector<Parameter> layout, std::span<float> parameters);

  // Weights normal with He's variance 2/inputs, biases zero.
  void initialise(std::uint64_t seed);

  // The logits of a batch, one row an example.
  const Matrix& forward(const Matrix& input);

  // Writes the gradient of the batch's mean loss and returns the loss. Goes from the last layer to
  // the first, and calls ready(layer) as soon as the two tensors of a layer are complete, so that
  // their exchange runs beside the computation of the layers below. `input_gradient` may be null.
  float gradient(const Examples& batch, std::span<float> gradients, const LayerReady& ready,
                 Matrix* input_gradient);

 private:
  std::size_t layers() const { return activations_.size(); }
  MatrixMap weight(std::size_t layer) { return map_of(layout_[2 * layer], parameters_); }
  MatrixMap bias(std::size_t layer) { return map_of(layout_[2 * layer + 1], parameters_); }

  std::vector<Parameter> layout_;
  std::span<float> parameters_;
  std::vector<Matrix> activations_;  // of each layer; the last one holds the logits
};

// How many rows of logits have their maximum at the label.
std::size_t count_right(const Matrix& logits, std::span<const std::uint8_t> labels);

}  // namespace tern::training
