#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

// 3LC written once more, element by element and with no thought for speed, so that the kernels are
// not compared with themselves.
namespace tern::codec::oracle {

struct Step {
  std::vector<float> scales;
  std::vector<int> quantized;
  std::vector<float> decoded;
  std::vector<float> residual;
};

struct Settings {
  float s;
  std::size_t scale_elements;  // 0: one scale for all
  float state_scale = 1.0f;
  float tensor_max = -1.0f;  // negative: of this input
};

inline Step quantize(const std::vector<float>& input, const std::vector<float>& residual,
                     const Settings& settings) {
  const auto& [s, scale_elements, state_scale, tensor_max] = settings;
  Step step;
  const std::size_t count = input.size();
  const std::size_t group = scale_elements == 0 ? count : scale_elements;
  std::vector<float> sum(count);
  for (std::size_t i = 0; i < count; ++i) {
    const float kept = residual.empty() ? 0.0f : residual[i] * state_scale;
    sum[i] = residual.empty() ? input[i] : input[i] + kept;
  }
  for (std::size_t begin = 0; begin < count; begin += group) {
    const std::size_t end = std::min(begin + group, count);
    float largest = 0.0f;
    for (std::size_t i = begin; i < end; ++i) largest = std::max(largest, std::fabs(sum[i]));
    if (tensor_max >= 0.0f) largest = tensor_max;
    const float scale = largest * s;
    const float half = scale * 0.5f;
    step.scales.push_back(scale);
    for (std::size_t i = begin; i < end; ++i) {
      const int q = sum[i] > half ? 1 : sum[i] < -half ? -1 : 0;
      const float decoded = q == 0 ? 0.0f : q > 0 ? scale : -scale;
      step.quantized.push_back(q);
      step.decoded.push_back(decoded);
      step.residual.push_back(sum[i] - decoded);
    }
  }
  return step;
}

// The paper's packing of all of `quantized` in five partitions.
inline std::vector<std::uint8_t> pack(const std::vector<int>& quantized, int pad_digit) {
  const std::size_t columns = (quantized.size() + 4) / 5;
  std::vector<int> digits(5 * columns, pad_digit);
  for (std::size_t i = 0; i < quantized.size(); ++i) digits[i] = quantized[i] + 1;
  std::vector<std::uint8_t> bytes(columns);
  for (std::size_t j = 0; j < columns; ++j) {
    int value = 0;
    for (std::size_t k = 0; k < 5; ++k) value = 3 * value + digits[k * columns + j];
    bytes[j] = static_cast<std::uint8_t>(value);
  }
  return bytes;
}

// Tiles: every 320 elements are packed as a tensor of their own, and so is what is left.
inline std::vector<std::uint8_t> pack_tiles(const std::vector<int>& quantized, int pad_digit) {
  std::vector<std::uint8_t> bytes;
  for (std::size_t begin = 0; begin < quantized.size(); begin += 320) {
    const std::size_t end = std::min(begin + 320, quantized.size());
    const std::vector<int> tile(quantized.begin() + static_cast<std::ptrdiff_t>(begin),
                                quantized.begin() + static_cast<std::ptrdiff_t>(end));
    const auto packed = pack(tile, pad_digit);
    bytes.insert(bytes.end(), packed.begin(), packed.end());
  }
  return bytes;
}

inline std::vector<std::uint8_t> zero_run(const std::vector<std::uint8_t>& bytes) {
  std::vector<std::uint8_t> out;
  for (std::size_t i = 0; i < bytes.size();) {
    if (bytes[i] != 121) {
      out.push_back(bytes[i++]);
      continue;
    }
    std::size_t run = 0;
    while (i < bytes.size() && bytes[i] == 121) ++run, ++i;
    for (; run >= 14; run -= 14) out.push_back(255);
    if (run == 1) out.push_back(121);
    if (run >= 2) out.push_back(static_cast<std::uint8_t>(241 + run));
  }
  return out;
}

// What a 3LC payload has to be.
inline std::vector<std::uint8_t> payload(const Step& step, bool paper, bool zero_run_on,
                                         int pad_digit) {
  std::vector<std::uint8_t> bytes;
  bool all_zero = true;
  for (const float scale : step.scales) {
    const auto bits = std::bit_cast<std::uint32_t>(scale);
    all_zero = all_zero && bits == 0;
    for (int shift = 0; shift < 32; shift += 8) {
      bytes.push_back(static_cast<std::uint8_t>(bits >> shift));
    }
  }
  if (all_zero) return {};
  auto columns = paper ? pack(step.quantized, pad_digit) : pack_tiles(step.quantized, pad_digit);
  if (zero_run_on) columns = zero_run(columns);
  bytes.insert(bytes.end(), columns.begin(), columns.end());
  return bytes;
}

}  // namespace tern::codec::oracle
