#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "bench/codec_stream.h"
#include "bench/tensor_file.h"

namespace tern::bench {

// One tensor at successive steps, a file each.
class ValueSequence {
 public:
  // Gives up (codec_options.h) where a file cannot be read, is of another type or length than the
  // first, or holds a NaN or an infinity. `raw_type` is what raw files hold; empty: there are none.
  ValueSequence(const std::vector<std::string>& paths, const std::string& raw_type);

  DType dtype() const { return tensors_.front().dtype; }
  std::size_t count() const { return tensors_.front().count(); }
  std::size_t steps() const { return tensors_.size(); }

  // Begins anew after the last step.
  ValueView at(std::size_t step) const;

  // The value of a step again and again, so many elements long.
  struct Long {
    std::vector<std::byte> own;
    std::vector<float> floats;
    ValueView view() const { return {own, floats}; }
  };
  Long repeated(std::size_t step, std::size_t elements) const;

 private:
  std::vector<Tensor> tensors_;
  std::vector<std::vector<float>> floats_;
};

}  // namespace tern::bench
