#include "examples/train_mnist/digits.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <stdexcept>

#include "examples/training/random.h"

namespace tern::train_mnist {
namespace {

using training::Random;

// Mean and standard deviation of MNIST's training pixels, scaled to 0 .. 1.
constexpr float kPixelMean = 0.1307F;
constexpr float kPixelDeviation = 0.3081F;

constexpr std::array<std::size_t, 4> kWidths{kImagePixels, 256, 256, kClasses};

float normalised(std::uint8_t pixel) {
  return (static_cast<float>(pixel) / 255.0F - kPixelMean) / kPixelDeviation;
}

std::vector<training::Parameter> make_layout() {
  std::vector<training::Parameter> layout;
  training::append_mlp(kWidths, &layout);
  return layout;
}

}  // namespace

Digits::Digits(DataSet data, const DigitsOptions& options)
    : data_(std::move(data)),
      options_(options),
      layout_(make_layout()),
      parameters_(training::parameter_count(layout_)),
      network_(layout_, parameters_) {
  if (options_.batch * static_cast<std::size_t>(options_.size) > data_.train.count()) {
    throw std::runtime_error("a step takes more images than there are; use a smaller --batch");
  }
}

// Deals the training images out: every epoch in another order, the same on all ranks, every image
// to one rank. What does not fill a step of all ranks is left out of the epoch.
std::span<const std::uint32_t> Digits::deal(int step) {
  const std::size_t images = data_.train.count();
  const std::size_t step_images = options_.batch * static_cast<std::size_t>(options_.size);
  const std::size_t steps_per_epoch = images / step_images;
  const std::size_t epoch = static_cast<std::size_t>(step) / steps_per_epoch;
  if (order_.empty() || epoch != epoch_) {
    epoch_ = epoch;
    order_ = Random(options_.seed * 1000003U + epoch).permutation(images);
  }
  const std::size_t within = static_cast<std::size_t>(step) % steps_per_epoch;
  const std::size_t mine = options_.batch * static_cast<std::size_t>(options_.rank);
  return std::span<const std::uint32_t>(order_).subspan(within * step_images + mine,
                                                        options_.batch);
}

float Digits::gradient(int step, std::span<float> gradients, const training::LayerReady& ready) {
  const std::uint64_t shift_seed =
      (options_.seed << 32) +
      static_cast<std::uint64_t>(step) * static_cast<std::uint64_t>(options_.size) +
      static_cast<std::uint64_t>(options_.rank);
  fill_batch(data_.train, deal(step), {options_.max_shift, shift_seed}, &batch_);
  return network_.gradient({batch_.images, batch_.labels}, gradients, ready, nullptr);
}

double Digits::accuracy() {
  constexpr std::size_t kRows = 500;
  const ImageSet& set = data_.test;
  std::size_t right = 0;
  Batch batch;
  std::vector<std::uint32_t> indices;
  for (std::size_t begin = 0; begin < set.count(); begin += kRows) {
    indices.resize(std::min(kRows, set.count() - begin));
    std::iota(indices.begin(), indices.end(), static_cast<std::uint32_t>(begin));
    fill_batch(set, indices, {}, &batch);
    right += training::count_right(network_.forward(batch.images), batch.labels);
  }
  return static_cast<double>(right) / static_cast<double>(set.count());
}

void fill_batch(const ImageSet& set, std::span<const std::uint32_t> indices, const Shifts& shifts,
                Batch* batch) {
  constexpr int kSide = static_cast<int>(kImageSide);
  const float background = normalised(0);
  const std::uint64_t choices = 2 * static_cast<std::uint64_t>(shifts.most) + 1;
  Random random(shifts.seed);
  batch->labels.resize(indices.size());
  batch->images.resize(static_cast<Eigen::Index>(indices.size()),
                       static_cast<Eigen::Index>(kImagePixels));
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const std::uint8_t* pixels = set.pixels.data() + std::size_t{indices[i]} * kImagePixels;
    float* row = batch->images.data() + i * kImagePixels;
    batch->labels[i] = set.labels[indices[i]];
    const int down = static_cast<int>(random.below(choices)) - shifts.most;
    const int right = static_cast<int>(random.below(choices)) - shifts.most;
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
