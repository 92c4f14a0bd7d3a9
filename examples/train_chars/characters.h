#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "examples/train_chars/text.h"
#include "examples/training/mlp.h"
#include "examples/training/task.h"

namespace tern::train_chars {

inline constexpr std::size_t kContext = 16;    // characters that the next one is told from
inline constexpr std::size_t kEmbedding = 32;  // numbers that stand for a character
inline constexpr std::size_t kHidden = 256;

struct CharactersOptions {
  std::size_t batch = 64;
  std::uint64_t seed = 1;
  int rank = 0;
  int size = 1;
};

// Tells the next character from the last ones: an embedding of each, and a perceptron
// 512-256-256-symbols on all of them.
class Characters : public training::Task {
 public:
  Characters(Text text, const CharactersOptions& options);

  const std::vector<training::Parameter>& layout() const override { return layout_; }
  std::span<float> parameters() override { return parameters_; }
  void initialise(std::uint64_t seed) override;
  float gradient(int step, std::span<float> gradients, const training::LayerReady& ready) override;
  double accuracy() override;

 private:
  // The embeddings of the characters before each place, and the character at it.
  void embed(const std::vector<std::uint8_t>& from);

  Text text_;
  CharactersOptions options_;
  std::vector<training::Parameter> layout_;
  std::vector<float> parameters_;
  training::Mlp network_;
  std::vector<std::size_t> places_;
  training::Matrix input_;
  training::Matrix input_gradient_;
  std::vector<std::uint8_t> labels_;
};

}  // namespace tern::train_chars
