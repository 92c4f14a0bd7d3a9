#include "codec/quantizer/lloyd_training.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "codec/quantizer/lloyd_kernels.h"

namespace tern::codec::quantizer {
namespace {

constexpr float kLargest = std::numeric_limits<float>::max();
constexpr double kGainToGoOn = 3e-5;

// Where the normal distribution reaches k/128, for k = 65 to 127. Numbers and not a function,
// because libraries differ in the last bits of functions, and the first levels are part of the
// result.
constexpr double kQuantiles[] = {
    0.019584285230, 0.039176085503, 0.058782936069, 0.078412412733, 0.098072152489, 0.117769874579,
    0.137513402144, 0.157310684610, 0.177169820992, 0.197099084294, 0.217106947210, 0.237202109329,
    0.257393526101, 0.277690439822, 0.298102412930, 0.318639363964, 0.339311606539, 0.360129891790,
    0.381105454764, 0.402250065322, 0.423576084201, 0.445096524986, 0.466825122853, 0.488776411115,
    0.510965806738, 0.533409706241, 0.556125593619, 0.579132162256, 0.602449453164, 0.626099012346,
    0.650104070648, 0.674489750196, 0.699283302383, 0.724514383492, 0.750215375468, 0.776421761148,
    0.803172565598, 0.830510878205, 0.858484474142, 0.887146559019, 0.916556667533, 0.946781756301,
    0.977897543941, 1.009990169250, 1.043158263318, 1.077515567040, 1.113194277161, 1.150349380376,
    1.189164350199, 1.229858759217, 1.272698641191, 1.318010897304, 1.366203816372, 1.417797137996,
    1.473467577947, 1.534120544353, 1.601008664886, 1.675939722773, 1.761670410363, 1.862731867422,
    1.987427885930, 2.153874694061, 2.417559016237,
};
constexpr int kMiddleQuantile = 64;  // in 128ths; the other half mirrors

double normal_quantile(int rank) noexcept {
  if (rank == kMiddleQuantile) return 0.0;
  return rank > kMiddleQuantile ? kQuantiles[rank - kMiddleQuantile - 1]
                                : -kQuantiles[kMiddleQuantile - rank - 1];
}

struct Cell {
  double sum = 0.0;
  double error = 0.0;
  std::size_t count = 0;
};

void reseed(std::span<Cell> cells, std::span<float> levels) noexcept {
  for (std::size_t i = 0; i < levels.size(); ++i) {
    if (cells[i].count != 0) continue;
    const auto worst = static_cast<std::size_t>(
        std::max_element(cells.begin(), cells.end(),
                         [](const Cell& a, const Cell& b) { return a.error < b.error; }) -
        cells.begin());
    if (cells[worst].error <= 0.0) return;
    const double away = std::sqrt(cells[worst].error / static_cast<double>(cells[worst].count));
    levels[i] = static_cast<float>(
        std::min(static_cast<double>(levels[worst]) + away, static_cast<double>(kLargest)));
    // About what is left of a uniform cell that is cut in two.
    cells[worst].error *= 0.25;
  }
}

}  // namespace

void first_levels(const Sample& sample, std::span<float> levels) noexcept {
  double sum = 0.0;
  double squares = 0.0;
  double count = 0.0;
  for (std::size_t i = 0; i < sample.count; i += sample.stride) {
    const auto value = static_cast<double>(sample.values[i]);
    sum += value;
    squares += value * value;
    count += 1.0;
  }
  const double mean = count > 0.0 ? sum / count : 0.0;
  const double variance = count > 0.0 ? squares / count - mean * mean : 0.0;
  // The best density of many levels is the cube root of the values' (Panter and Dite, 1951): for a
  // Gaussian again one, sqrt(3) times as wide.
  const double width = std::sqrt(3.0 * std::max(variance, 0.0));
  // The i-th of n levels is where the distribution reaches (2 i + 1) / (2 n); n divides 64.
  const std::size_t unit = kMostLevels / levels.size();
  for (std::size_t i = 0; i < levels.size(); ++i) {
    const double at = mean + width * normal_quantile(static_cast<int>((2 * i + 1) * unit));
    levels[i] = static_cast<float>(std::clamp<double>(at, -kLargest, kLargest));
  }
}

void find_middles(std::span<const float> levels, float* middles) noexcept {
  // Halved before they are added: the sum may be beyond f32.
  for (std::size_t i = 0; i + 1 < levels.size(); ++i) {
    middles[i] = 0.5f * levels[i] + 0.5f * levels[i + 1];
  }
}

double improve(const Sample& sample, std::span<float> levels) noexcept {
  float middles[kMostLevels];
  find_middles(levels, middles);
  Cell cells[kMostLevels];
  constexpr std::size_t kBatch = 512;
  float values[kBatch];
  std::uint8_t codes[kBatch];
  for (std::size_t i = 0; i < sample.count;) {
    std::size_t count = 0;
    for (; count < kBatch && i < sample.count; i += sample.stride)
      values[count++] = sample.values[i];
    lloyd_kernels().assign({values, count}, {middles, levels.size() - 1}, codes);
    for (std::size_t j = 0; j < count; ++j) {
      Cell& cell = cells[codes[j]];
      const auto value = static_cast<double>(values[j]);
      const double error = value - static_cast<double>(levels[codes[j]]);
      cell.sum += value;
      cell.error += error * error;
      ++cell.count;
    }
  }
  double total = 0.0;
  for (std::size_t i = 0; i < levels.size(); ++i) {
    total += cells[i].error;
    if (cells[i].count == 0) continue;
    levels[i] = static_cast<float>(cells[i].sum / static_cast<double>(cells[i].count));
  }
  reseed({cells, levels.size()}, levels);
  std::sort(levels.begin(), levels.end());
  return total;
}

void train(const Sample& sample, int most, std::span<float> levels) noexcept {
  double before = std::numeric_limits<double>::infinity();
  for (int i = 0; i < most; ++i) {
    const double error = improve(sample, levels);
    if (error == 0.0 || before - error < kGainToGoOn * error) return;
    before = error;
  }
}

}  // namespace tern::codec::quantizer
