// One bit per element: 1-bit SGD (Seide, Fu, Droppo, Li and Yu, Interspeech 2014). The threshold is
// zero, and each side of it is decoded as the mean of its elements, per block: the two numbers that
// leave the least squared error. -0 is not below zero, so its bit is 1.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "codec/quantizer/implementation.h"
#include "codec/quantizer/onebit_kernels.h"

namespace tern::codec::quantizer {
namespace {

// The bits of each block begin at a byte.
std::size_t bit_bytes(std::size_t elements, std::size_t block) noexcept {
  if (elements == 0) return 0;
  return elements / block * ((block + 7) / 8) + (elements % block + 7) / 8;
}

std::size_t block_of(const Params& params, std::size_t elements) noexcept {
  return params.block == 0 ? elements : params.block;
}

Sizes sizes_of(const Params& params, std::size_t elements) noexcept {
  return {sizeof(Means) * block_count(elements, params.block),
          bit_bytes(elements, block_of(params, elements))};
}

std::size_t piece(const Params& params) noexcept { return std::lcm<std::size_t>(64, params.block); }

float mean(const double* lanes, std::size_t count) noexcept {
  double sum = 0.0;
  for (std::size_t lane = 0; lane < kSideLanes; ++lane) sum += lanes[lane];
  return count == 0 ? 0.0f : static_cast<float>(sum / static_cast<double>(count));
}

bool write(const Params& params, const Input& input, std::byte* side, std::byte* body) noexcept {
  const OnebitKernels& kernels = onebit_kernels();
  const std::size_t elements = input.values.size();
  const std::size_t block = block_of(params, elements);
  auto* bits = reinterpret_cast<std::uint8_t*>(body);
  for (std::size_t begin = 0; begin < elements; begin += block) {
    const std::size_t count = std::min(block, elements - begin);
    SideSums sums;
    kernels.encode(input.values.data() + begin, count, bits, sums);
    const Means means = {mean(sums.below, count - sums.above_count),
                         mean(sums.above, sums.above_count)};
    std::memcpy(side, &means, sizeof(means));
    side += sizeof(means);
    bits += (count + 7) / 8;
  }
  return true;
}

bool read(const Params& params, const std::byte* side, const std::byte* body,
          std::span<float> out) noexcept {
  const OnebitKernels& kernels = onebit_kernels();
  const std::size_t block = block_of(params, out.size());
  const auto* bits = reinterpret_cast<const std::uint8_t*>(body);
  for (std::size_t begin = 0; begin < out.size(); begin += block) {
    const std::size_t count = std::min(block, out.size() - begin);
    Means means;
    std::memcpy(&means, side, sizeof(means));
    if (!(means.below <= 0.0f && means.above >= 0.0f) || std::isinf(means.below) ||
        std::isinf(means.above)) {
      return false;
    }
    if (count % 8 != 0 && bits[count / 8] >> (count % 8) != 0) return false;
    kernels.decode(bits, count, means, out.data() + begin);
    side += sizeof(means);
    bits += (count + 7) / 8;
  }
  return true;
}

}  // namespace

const Implementation kOnebit = {sizes_of, piece, write, read, biased};

}  // namespace tern::codec::quantizer
