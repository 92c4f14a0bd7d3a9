#include "examples/train_chars/characters.h"

#include <algorithm>
#include <array>

#include "examples/training/random.h"

namespace tern::train_chars {
namespace {

using training::MatrixMap;
using training::Random;

std::vector<training::Parameter> make_layout(std::size_t symbols) {
  std::vector<training::Parameter> layout;
  training::append_parameter("embedding", {symbols, kEmbedding}, 0, &layout);
  const std::array<std::size_t, 4> widths{kContext * kEmbedding, kHidden, kHidden, symbols};
  training::append_mlp(widths, &layout);
  return layout;
}

}  // namespace

Characters::Characters(Text text, const CharactersOptions& options)
    : text_(std::move(text)),
      options_(options),
      layout_(make_layout(text_.symbols)),
      parameters_(training::parameter_count(layout_)),
      network_({layout_.begin() + 1, layout_.end()}, parameters_) {}

void Characters::initialise(std::uint64_t seed) {
  Random random(seed + 1);
  MatrixMap table = training::map_of(layout_[0], parameters_);
  std::generate_n(table.data(), table.size(), [&] { return random.normal(); });
  network_.initialise(seed);
}

void Characters::embed(const std::vector<std::uint8_t>& from) {
  const auto rows = static_cast<Eigen::Index>(places_.size());
  input_.resize(rows, static_cast<Eigen::Index>(kContext * kEmbedding));
  labels_.resize(places_.size());
  for (std::size_t i = 0; i < places_.size(); ++i) {
    labels_[i] = from[places_[i]];
    for (std::size_t back = 0; back < kContext; ++back) {
      const float* vector = parameters_.data() + kEmbedding * from[places_[i] - kContext + back];
      std::copy_n(vector, kEmbedding, input_.data() + (i * kContext + back) * kEmbedding);
    }
  }
}

float Characters::gradient(int step, std::span<float> gradients,
                           const training::LayerReady& ready) {
  // Other places for every step and rank.
  const std::uint64_t turn =
      static_cast<std::uint64_t>(step) * static_cast<std::uint64_t>(options_.size) +
      static_cast<std::uint64_t>(options_.rank);
  Random random((options_.seed << 32) + turn);
  places_.resize(options_.batch);
  for (std::size_t& place : places_) {
    place = kContext + random.below(text_.train.size() - kContext);
  }
  embed(text_.train);
  const float loss = network_.gradient({input_, labels_}, gradients, ready, &input_gradient_);
  const std::span<float> table = gradients.first(layout_[0].count());
  std::fill(table.begin(), table.end(), 0.0F);
  for (std::size_t i = 0; i < places_.size(); ++i) {
    for (std::size_t back = 0; back < kContext; ++back) {
      const float* from = input_gradient_.data() + (i * kContext + back) * kEmbedding;
      float* to = table.data() + kEmbedding * text_.train[places_[i] - kContext + back];
      for (std::size_t j = 0; j < kEmbedding; ++j) to[j] += from[j];
    }
  }
  ready(0);
  return loss;
}

double Characters::accuracy() {
  constexpr std::size_t kRows = 500;
  // A part is enough to see where it goes.
  const std::size_t end = std::min(text_.test.size(), kContext + 8 * kRows);
  std::size_t right = 0;
  for (std::size_t begin = kContext; begin < end; begin += kRows) {
    places_.resize(std::min(kRows, end - begin));
    for (std::size_t i = 0; i < places_.size(); ++i) places_[i] = begin + i;
    embed(text_.test);
    right += training::count_right(network_.forward(input_), labels_);
  }
  return static_cast<double>(right) / static_cast<double>(end - kContext);
}

}  // namespace tern::train_chars
