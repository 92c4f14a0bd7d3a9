#include "examples/train_mnist/mlp.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "examples/train_mnist/random.h"

namespace tern::train_mnist {
namespace {

// Mean and standard deviation of MNIST's training pixels, scaled to 0 .. 1.
constexpr float kPixelMean = 0.1307F;
constexpr float kPixelDeviation = 0.3081F;

float normalised(std::uint8_t pixel) {
  return (static_cast<float>(pixel) / 255.0F - kPixelMean) / kPixelDeviation;
}

MatrixMap map_of(const Parameter& parameter, std::span<float> flat) {
  return {flat.data() + parameter.offset, static_cast<Eigen::Index>(parameter.rows),
          static_cast<Eigen::Index>(parameter.columns)};
}

// Turns logits into the gradient of the mean cross-entropy in place and returns the mean loss.
float softmax_gradient(const std::vector<std::uint8_t>& labels, Matrix* logits) {
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

Mlp::Mlp(std::span<float> parameters) : parameters_(parameters) {}

MatrixMap Mlp::weight(std::size_t layer) { return map_of(kParameters[2 * layer], parameters_); }
MatrixMap Mlp::bias(std::size_t layer) { return map_of(kParameters[2 * layer + 1], parameters_); }

void Mlp::initialise(std::uint64_t seed) {
  Random random(seed);
  for (std::size_t layer = 0; layer < kLayers; ++layer) {
    const float deviation = std::sqrt(2.0F / static_cast<float>(kParameters[2 * layer].rows));
    MatrixMap values = weight(layer);
    std::generate_n(values.data(), values.size(), [&] { return deviation * random.normal(); });
    bias(layer).setZero();
  }
}

const Matrix& Mlp::forward(const Matrix& images) {
  const Matrix* input = &images;
  for (std::size_t layer = 0; layer < kLayers; ++layer) {
    Matrix& output = activations_[layer];
    output.noalias() = *input * weight(layer);
    output.rowwise() += bias(layer).row(0);
    if (layer + 1 < kLayers) {
      output = output.cwiseMax(0.0F);
    }
    input = &output;
  }
  return activations_.back();
}

float Mlp::gradient(const Batch& batch, std::span<float> gradients,
                    const std::function<void(std::size_t)>& ready) {
  forward(batch.images);
  Matrix delta = activations_.back();
  const float loss = softmax_gradient(batch.labels, &delta);
  for (std::size_t layer = kLayers; layer-- > 0;) {
    const Matrix& input = layer == 0 ? batch.images : activations_[layer - 1];
    map_of(kParameters[2 * layer], gradients).noalias() = input.transpose() * delta;
    map_of(kParameters[2 * layer + 1], gradients) = delta.colwise().sum();
    ready(layer);
    if (layer > 0) {
      const Matrix below = delta * weight(layer).transpose();
      delta = (input.array() > 0.0F).select(below, 0.0F);
    }
  }
  return loss;
}

double Mlp::accuracy(const ImageSet& set) {
  constexpr std::size_t kRows = 500;
  std::size_t right = 0;
  Batch batch;
  std::vector<std::uint32_t> indices;
  for (std::size_t begin = 0; begin < set.count(); begin += kRows) {
    indices.resize(std::min(kRows, set.count() - begin));
    std::iota(indices.begin(), indices.end(), static_cast<std::uint32_t>(begin));
    fill_batch(set, indices, 0, 0, &batch);
    const Matrix& logits = forward(batch.images);
    for (Eigen::Index row = 0; row < logits.rows(); ++row) {
      Eigen::Index best = 0;
      logits.row(row).maxCoeff(&best);
      right += best == batch.labels[static_cast<std::size_t>(row)] ? 1 : 0;
    }
  }
  return static_cast<double>(right) / static_cast<double>(set.count());
}

void fill_batch(const ImageSet& set, std::span<const std::uint32_t> indices, int max_shift,
                std::uint64_t seed, Batch* batch) {
  constexpr int kSide = static_cast<int>(kImageSide);
  const float background = normalised(0);
  const std::uint64_t choices = 2 * static_cast<std::uint64_t>(max_shift) + 1;
  Random random(seed);
  batch->labels.resize(indices.size());
  batch->images.resize(static_cast<Eigen::Index>(indices.size()),
                       static_cast<Eigen::Index>(kImagePixels));
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const std::uint8_t* pixels = set.pixels.data() + std::size_t{indices[i]} * kImagePixels;
    float* row = batch->images.data() + i * kImagePixels;
    batch->labels[i] = set.labels[indices[i]];
    const int down = static_cast<int>(random.below(choices)) - max_shift;
    const int right = static_cast<int>(random.below(choices)) - max_shift;
    for (int y = 0; y < kSide; ++y) {
      for (int x = 0; x < kSide; ++x) {
        const int from_y = y - down;
        const int from_x = x - right;
        const bool inside = from_y >= 0 && from_y < kSide && from_x >= 0 && from_x < kSide;
        row[y * kSide + x] = inside ? normalised(pixels[from_y * kSide + from_x]) : background;
      }
    }
  }
}

}  // namespace tern::train_mnist
