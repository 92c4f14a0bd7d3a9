// A codebook of 2^bits levels that is trained on the chunk itself and travels with it. The levels
// of the step before are nearly right for the next, so that a few iterations on a small sample
// follow them; the first step pays for a long training.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "codec/quantizer/implementation.h"
#include "codec/quantizer/lloyd_kernels.h"
#include "codec/quantizer/lloyd_training.h"
#include "codec/quantizer/pack.h"

namespace tern::codec::quantizer {
namespace {

constexpr std::size_t kFirstSample = 65536;
constexpr int kFirstIterations = 200;
constexpr std::size_t kNextSample = 4096;
constexpr int kNextIterations = 2;
// Codes at a time; a multiple of eight.
constexpr std::size_t kStride = 2048;

unsigned bits_of(const Params& params) noexcept { return std::clamp<unsigned>(params.bits, 1, 6); }

std::size_t level_count(const Params& params) noexcept { return std::size_t{1} << bits_of(params); }

Sizes sizes_of(const Params& params, std::size_t elements) noexcept {
  if (elements == 0) return {};
  return {sizeof(float) * level_count(params), packed_bytes(elements, bits_of(params))};
}

std::size_t piece(const Params&) noexcept { return 0; }

bool usable(std::span<const float> levels) noexcept {
  for (std::size_t i = 0; i < levels.size(); ++i) {
    if (!std::isfinite(levels[i]) || (i != 0 && levels[i] < levels[i - 1])) return false;
  }
  return true;
}

void train_levels(const Input& input, std::span<float> levels) noexcept {
  const std::size_t elements = input.values.size();
  const bool warm =
      input.codebook != nullptr && usable({input.codebook, levels.size()}) &&
      std::any_of(input.codebook, input.codebook + levels.size(), [](float x) { return x != 0; });
  const std::size_t most = warm ? kNextSample : kFirstSample;
  const Sample sample = {input.values.data(), elements, (elements + most - 1) / most};
  if (warm) {
    std::copy_n(input.codebook, levels.size(), levels.data());
    train(sample, kNextIterations, levels);
  } else {
    first_levels(sample, levels);
    train(sample, kFirstIterations, levels);
  }
  if (input.codebook != nullptr) std::copy(levels.begin(), levels.end(), input.codebook);
}

bool write(const Params& params, const Input& input, std::byte* side, std::byte* body) noexcept {
  const std::size_t elements = input.values.size();
  if (elements == 0) return true;
  float storage[kMostLevels];
  const std::span<float> levels(storage, level_count(params));
  train_levels(input, levels);
  std::memcpy(side, levels.data(), levels.size_bytes());
  float middles[kMostLevels];
  find_middles(levels, middles);
  const LloydKernels& kernels = lloyd_kernels();
  const unsigned bits = bits_of(params);
  std::uint8_t codes[kStride];
  for (std::size_t i = 0; i < elements; i += kStride) {
    const std::size_t count = std::min(kStride, elements - i);
    kernels.assign(input.values.subspan(i, count), {middles, levels.size() - 1}, codes);
    kernels.pack(codes, count, bits, reinterpret_cast<std::uint8_t*>(body) + packed_bytes(i, bits));
  }
  return true;
}

bool read(const Params& params, const std::byte* side, const std::byte* body,
          std::span<float> out) noexcept {
  if (out.empty()) return true;
  float storage[kMostLevels];
  const std::span<float> levels(storage, level_count(params));
  std::memcpy(levels.data(), side, levels.size_bytes());
  if (!usable(levels)) return false;
  const LloydKernels& kernels = lloyd_kernels();
  const unsigned bits = bits_of(params);
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(body);
  const std::size_t used = out.size() * bits % 8;
  if (used != 0 && bytes[packed_bytes(out.size(), bits) - 1] >> used != 0) return false;
  std::uint8_t codes[kStride];
  for (std::size_t i = 0; i < out.size(); i += kStride) {
    const std::size_t count = std::min(kStride, out.size() - i);
    kernels.unpack(bytes + packed_bytes(i, bits), count, bits, codes);
    kernels.look_up({codes, count}, levels, out.data() + i);
  }
  return true;
}

}  // namespace

const Implementation kLloyd = {sizes_of, piece, write, read, biased};

}  // namespace tern::codec::quantizer
