#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <vector>

namespace tern::bench {

// Floats on whole pages, as the arenas, slabs and states of the daemon are. Touched by the
// constructor.
class FloatArray {
 public:
  FloatArray(std::size_t count, float value);
  float* data() { return data_.get(); }
  std::span<float> span() { return {data_.get(), count_}; }
  std::span<const float> span() const { return {data_.get(), count_}; }

 private:
  std::size_t count_;
  std::unique_ptr<float, void (*)(void*)> data_;
};

// Inputs that are new in every iteration: several pools in turn, and Gaussian ones entered at
// another place every time. A codec with a residual that sees zeros, a constant or one buffer again
// and again has an easier life than in a training.
class Inputs {
 public:
  // Every input has up to `max_count` elements, Gaussian of mean 0 and deviation 0.01.
  Inputs(std::size_t max_count, std::size_t pools, std::uint64_t seed);

  // A tensor at successive steps, over and over, beginning with step `seed`; each is repeated until
  // it is long enough. Holds all of them at that length.
  // Requires: at least one, and none without elements.
  Inputs(std::size_t max_count, std::span<const std::vector<float>> recorded, std::uint64_t seed);

  // Requires: count <= max_count. The sequence depends on the seed alone; the memory is whole cache
  // lines of a pool.
  std::span<const float> next(std::size_t count);

 private:
  static constexpr std::size_t kSlack = std::size_t{1} << 16;
  static constexpr std::size_t kLine = 64 / sizeof(float);
  std::mt19937_64 engine_;
  std::size_t places_ = kSlack / kLine;  // at which a pool is entered
  std::size_t turn_ = 0;
  std::vector<FloatArray> pools_;
};

}  // namespace tern::bench
