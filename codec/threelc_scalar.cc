// The scalar target: the plainest form of every 3LC kernel. The vector kernels give the same bits.
#include <algorithm>
#include <cmath>

#include "codec/kernels.h"

namespace tern::codec {
namespace {

std::uint32_t scan(const Sums& sums, float* energy_lanes) noexcept {
  const auto& [input, residual, state_scale, count] = sums;
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const float value = input[i];
    const float sum = residual == nullptr ? value : value + residual[i] * state_scale;
    largest = std::max(largest, magnitude_bits(sum));
    energy_lanes[i % kScanLanes] += value * value;
  }
  return largest;
}

// The rule of the paper by comparison: no division, and a tie goes to zero.
int quantize_element(float value, float threshold) noexcept {
  return (value > threshold ? 1 : 0) - (value < -threshold ? 1 : 0);
}

void quantize(const QuantizeBlocks& request, ZeroRunWriter& writer, float* energy_lanes) noexcept {
  ScaleCursor cursor(request.scales, request.group_runs, 0, request.delivered);
  for (std::size_t block = 0; block < request.blocks; ++block) {
    std::uint8_t columns[kBlockColumns];
    std::fill_n(columns, kBlockColumns, kZeroColumn);
    for (std::size_t run = 0; run < kRunsPerBlock; ++run) {
      cursor.next_run();
      const std::size_t base = block * request.block_step + run * request.run_step;
      for (std::size_t column = 0; column < kBlockColumns; ++column) {
        const std::size_t i = base + column;
        const float sum = request.residual == nullptr
                              ? request.input[i]
                              : request.input[i] + request.residual[i] * request.state_scale;
        const int q = quantize_element(sum, cursor.threshold());
        const float decoded =
            q == 0 ? 0.0f : std::copysign(cursor.delivered(), static_cast<float>(q));
        const float left = sum - decoded;
        if (request.residual != nullptr) request.residual[i] = left;
        energy_lanes[column] += left * left;
        columns[column] = static_cast<std::uint8_t>(columns[column] + kDigitWeights[run] * q);
      }
    }
    writer.append(columns, kBlockColumns);
  }
}

std::size_t expand(ZeroRunReader& reader, std::uint8_t* columns, std::size_t count) noexcept {
  std::size_t made = 0;
  while (made < count) {
    if (reader.pending != 0) {
      const std::size_t zeros = std::min<std::size_t>(reader.pending, count - made);
      std::fill_n(columns + made, zeros, kZeroColumn);
      made += zeros;
      reader.pending -= static_cast<std::uint32_t>(zeros);
      continue;
    }
    if (reader.next == reader.end) break;
    const std::uint8_t byte = *reader.next++;
    if (byte > kLargestColumn) {
      reader.pending = byte - 241u;
    } else {
      columns[made++] = byte;
    }
  }
  return made;
}

void unpack(const UnpackBlocks& request) noexcept {
  ScaleCursor cursor(request.scales, request.group_runs, request.first_run, DType::f32);
  for (std::size_t block = 0; block < request.blocks; ++block) {
    const std::uint8_t* const columns = request.columns + block * kBlockColumns;
    for (std::size_t run = 0; run < kRunsPerBlock; ++run) {
      cursor.next_run();
      const std::size_t begin = block * request.block_step + run * request.run_step;
      for (std::size_t column = 0; column < kBlockColumns; ++column) {
        const int q = columns[column] / kDigitWeights[run] % 3 - 1;
        const float value = q == 0 ? 0.0f : std::copysign(cursor.scale(), static_cast<float>(q));
        float& out = request.out[begin + column];
        if (request.to == nullptr) {
          out = value;
        } else {
          const float before = load_f32(request.to + (begin + column) * sizeof(float));
          out = q == 0 ? before : before + value;
        }
      }
    }
  }
}

}  // namespace

const ThreelcKernels kThreelcScalar = {scan, quantize, expand, unpack};

}  // namespace tern::codec
