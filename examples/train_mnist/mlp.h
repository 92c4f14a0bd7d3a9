#pragma once

#include <Eigen/Core>
#include <array>
#include <cstddef>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "examples/train_mnist/mnist.h"

namespace tern::train_mnist {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using MatrixMap = Eigen::Map<Matrix>;

// One weight or bias tensor: its stable name and its place in the flat array of all parameters.
struct Parameter {
  std::string_view name;
  std::size_t rows;
  std::size_t columns;
  std::size_t offset;
  constexpr std::size_t count() const { return rows * columns; }
};

inline constexpr std::size_t kHidden = 256;
inline constexpr std::size_t kLayers = 3;
inline constexpr std::array<Parameter, 2 * kLayers> kParameters{{
    {"layer1.weight", kImagePixels, kHidden, 0},
    {"layer1.bias", 1, kHidden, 200704},
    {"layer2.weight", kHidden, kHidden, 200960},
    {"layer2.bias", 1, kHidden, 266496},
    {"layer3.weight", kHidden, kClasses, 266752},
    {"layer3.bias", 1, kClasses, 269312},
}};
inline constexpr std::size_t kParameterCount =
    kParameters.back().offset + kParameters.back().count();
static_assert(kParameterCount == 269322);

struct Batch {
  Matrix images;  // one row an image, normalised
  std::vector<std::uint8_t> labels;
};

// A perceptron 784-256-256-10 with rectified units and softmax cross-entropy. The parameters live
// in memory of the caller; one object holds the activations of one batch.
class Mlp {
 public:
  explicit Mlp(std::span<float> parameters);

  // Weights normal with He's variance 2/inputs, biases zero.
  void initialise(std::uint64_t seed);

  // Writes the gradient of the batch's mean loss and returns the loss. Goes from the last layer to
  // the first, and calls ready(layer) as soon as the two tensors of a layer are complete, so that
  // their exchange runs beside the computation of the layers below.
  float gradient(const Batch& batch, std::span<float> gradients,
                 const std::function<void(std::size_t layer)>& ready);

  // Share of the set that is classified right, 0 .. 1.
  double accuracy(const ImageSet& set);

 private:
  MatrixMap weight(std::size_t layer);
  MatrixMap bias(std::size_t layer);
  const Matrix& forward(const Matrix& images);

  std::span<float> parameters_;
  std::array<Matrix, kLayers> activations_;  // of each layer; the last one holds the logits
};

// The rows of `indices`, each image moved by up to `max_shift` pixels in both directions (0: not at
// all), which stands in for more training data.
void fill_batch(const ImageSet& set, std::span<const std::uint32_t> indices, int max_shift,
                std::uint64_t seed, Batch* batch);

}  // namespace tern::train_mnist
