#include "bench/value_sequence.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "bench/codec_options.h"

namespace tern::bench {

ValueSequence::ValueSequence(const std::vector<std::string>& paths, const std::string& raw_type) {
  std::optional<DType> raw_dtype;
  if (!raw_type.empty()) {
    raw_dtype = dtype_named(raw_type);
    if (!raw_dtype) give_up("--dtype is f32, f16 or bf16, not " + raw_type);
  }
  for (const std::string& path : paths) {
    tensors_.push_back(value_or_exit(read_tensor(path, raw_dtype)));
    const Tensor& tensor = tensors_.back();
    if (tensor.dtype != dtype() || tensor.count() != count()) {
      give_up(path + " and " + paths.front() +
              " differ in type or length; all inputs are one tensor at successive steps");
    }
    floats_.push_back(to_f32(tensor));
    if (!std::all_of(floats_.back().begin(), floats_.back().end(),
                     [](float value) { return std::isfinite(value); })) {
      give_up(path + " holds a NaN or an infinity: such a tensor travels raw");
    }
  }
}

ValueView ValueSequence::at(std::size_t step) const {
  const std::size_t index = step % tensors_.size();
  return {tensors_[index].bytes, floats_[index]};
}

ValueSequence::Long ValueSequence::repeated(std::size_t step, std::size_t elements) const {
  const ValueView one = at(step);
  const std::size_t element_bytes = dtype_bytes(dtype());
  Long result;
  result.own.resize(elements * element_bytes);
  result.floats.resize(elements);
  for (std::size_t begin = 0; begin < elements; begin += one.floats.size()) {
    const std::size_t count = std::min(one.floats.size(), elements - begin);
    std::copy_n(one.floats.data(), count, result.floats.data() + begin);
    std::copy_n(one.own.data(), count * element_bytes, result.own.data() + begin * element_bytes);
  }
  return result;
}

}  // namespace tern::bench
