#include "bench/inputs.h"

#include <algorithm>
#include <cstdlib>

#include "base/check.h"

namespace tern::bench {
namespace {

constexpr std::size_t kPageBytes = 4096;

std::size_t whole_pages(std::size_t bytes) {
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

}  // namespace

FloatArray::FloatArray(std::size_t count, float value)
    : count_(count),
      data_(static_cast<float*>(std::aligned_alloc(
                kPageBytes, whole_pages(std::max<std::size_t>(1, count) * sizeof(float)))),
            &std::free) {
  TERN_CHECK(data_ != nullptr);
  std::fill_n(data_.get(), count_, value);
}

Inputs::Inputs(std::size_t max_count, std::size_t pools, std::uint64_t seed) : engine_(seed) {
  std::normal_distribution<float> normal(0.0f, 0.01f);
  for (std::size_t pool = 0; pool < pools; ++pool) {
    FloatArray& values = pools_.emplace_back(max_count + kSlack, 0.0f);
    for (float& value : values.span()) value = normal(engine_);
  }
}

Inputs::Inputs(std::size_t max_count, std::span<const std::vector<float>> recorded,
               std::uint64_t seed)
    : places_(1) {  // an element is the same parameter in every step
  for (const std::vector<float>& step : recorded) {
    FloatArray& values = pools_.emplace_back(max_count, 0.0f);
    for (std::size_t i = 0; i < values.span().size(); ++i) {
      values.data()[i] = step[i % step.size()];
    }
  }
  // Ranks, whose seeds follow each other, are at unlike steps: no two have the same gradient.
  turn_ = seed % pools_.size();
}

std::span<const float> Inputs::next(std::size_t count) {
  const FloatArray& pool = pools_[turn_++ % pools_.size()];
  return pool.span().subspan(engine_() % places_ * kLine, count);
}

}  // namespace tern::bench
