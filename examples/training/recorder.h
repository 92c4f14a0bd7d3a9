#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "examples/training/parameter.h"

namespace tern::training {

// Steps as people write them: `1,10,100-115`, counted from 1. Ascending, each once. Empty: 1, 10,
// 100 ... up to the last step. Throws std::runtime_error, which says what is wrong.
std::vector<int> parse_record_steps(std::string_view text, int last_step);

// Writes gradients and weights as NumPy files of little-endian f32, one a tensor and step:
// grad_layer1.weight_step100.npy is this rank's gradient before any exchange, and
// weight_layer1.weight_step100.npy what it was computed with. The weights of the step after a
// recorded one are written too: those are the two that a difference is taken between.
class Recorder {
 public:
  // An empty folder records nothing. Makes the folder. Throws std::runtime_error.
  Recorder(std::string folder, std::vector<int> steps, std::vector<Parameter> layout);

  void gradients(int step, std::size_t layer, std::span<const float> gradients) const;
  void weights(int step, std::span<const float> parameters) const;

 private:
  bool recorded(int step) const;
  void write(std::string_view kind, const Parameter& parameter, int step,
             std::span<const float> flat) const;

  std::string folder_;
  std::vector<int> steps_;
  std::vector<Parameter> layout_;
};

}  // namespace tern::training
