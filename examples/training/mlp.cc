#include "examples/training/mlp.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "examples/training/random.h"

namespace tern::training {
namespace {

// Turns logits into the gradient of the mean cross-entropy in place and returns the mean loss.
float softmax_gradient(std::span<const std::uint8_t> labels, Matrix* logits) {
  double loss = 0.0;
  const float share = 1.0F / static_cast<float>(labels.size());
  for (Eigen::Index row = 0; row < logits->rows(); ++row) {
    auto line = logits->row(row).array();
    const auto label = static_cast<Eigen::Index>(labels[static_cast<std::size_t>(row)]);
    line -= line.maxCoeff();
    const float log_sum = std::log(line.exp().sum());
    loss += static_cast<double>(log_sum - line(label));
    line = (line - log_sum).exp() * share;
    line(label) -= share;
  }
  return static_cast<float>(loss) * share;
}

}  // namespace

MatrixMap map_of(const Parameter& parameter, std::span<float> flat) {
  return {flat.data() + parameter.offset, static_cast<Eigen::Index>(parameter.rows),
          static_cast<Eigen::Index>(parameter.columns)};
}

void append_mlp(std::span<const std::size_t> widths, std::vector<Parameter>* parameters) {
  const std::size_t first = layer_count(*parameters);
  for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
    const std::string name = "layer" + std::to_string(i + 1);
    append_parameter(name + ".weight", {widths[i], widths[i + 1]}, first + i, parameters);
    append_parameter(name + ".bias", {1, widths[i + 1]}, first + i, parameters);
  }
}

Mlp::Mlp(std::vector<Parameter> layout, std::span<float> parameters)
    : layout_(std::move(layout)), parameters_(parameters), activations_(layout_.size() / 2) {}

void Mlp::initialise(std::uint64_t seed) {
  Random random(seed);
  for (std::size_t layer = 0; layer < layers(); ++layer) {
    const float deviation = std::sqrt(2.0F / static_cast<float>(layout_[2 * layer].rows));
    MatrixMap values = weight(layer);
    std::generate_n(values.data(), values.size(), [&] { return deviation * random.normal(); });
    bias(layer).setZero();
  }
}

const Matrix& Mlp::forward(const Matrix& input) {
  const Matrix* from = &input;
  for (std::size_t layer = 0; layer < layers(); ++layer) {
    Matrix& output = activations_[layer];
    output.noalias() = *from * weight(layer);
    output.rowwise() += bias(layer).row(0);
    if (layer + 1 < layers()) {
      output = output.cwiseMax(0.0F);
    }
    from = &output;
  }
  return activations_.back();
}

float Mlp::gradient(const Examples& batch, std::span<float> gradients, const LayerReady& ready,
                    Matrix* input_gradient) {
  const auto& [input, labels] = batch;
  forward(input);
  Matrix delta = activations_.back();
  const float loss = softmax_gradient(labels, &delta);
  for (std::size_t layer = layers(); layer-- > 0;) {
    const Matrix& below = layer == 0 ? input : activations_[layer - 1];
    map_of(layout_[2 * layer], gradients).noalias() = below.transpose() * delta;
    map_of(layout_[2 * layer + 1], gradients) = delta.colwise().sum();
    ready(layout_[2 * layer].layer);
    if (layer > 0) {
      const Matrix back = delta * weight(layer).transpose();
      delta = (below.array() > 0.0F).select(back, 0.0F);
    } else if (input_gradient != nullptr) {
      input_gradient->noalias() = delta * weight(0).transpose();
    }
  }
  return loss;
}

std::size_t count_right(const Matrix& logits, std::span<const std::uint8_t> labels) {
  std::size_t right = 0;
  for (Eigen::Index row = 0; row < logits.rows(); ++row) {
    Eigen::Index best = 0;
    logits.row(row).maxCoeff(&best);
    right += best == labels[static_cast<std::size_t>(row)] ? 1 : 0;
  }
  return right;
}

}  // namespace tern::training
