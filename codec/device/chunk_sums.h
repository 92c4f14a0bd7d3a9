#pragma once

#include <bit>
#include <cstdint>

#include "codec/device/chunk.h"
#include "codec/device/simt.h"
#include "codec/kernels.h"

// The first pass of every encoder: input plus residual, the largest magnitude of each row, and the
// energy of the input in the order of additions of the processor's codec.
namespace tern::codec::device {

// As codec/kernels.h has them, in the numbers that places are counted in here.
inline constexpr std::uint32_t kScanLanes = codec::kScanLanes;
inline constexpr std::uint32_t kResidualLanes = codec::kResidualLanes;

TERN_DEVICE std::uint32_t magnitude_of(float value) {
  return std::bit_cast<std::uint32_t>(value) & 0x7fffffffu;
}

TERN_DEVICE std::uint32_t rounded_up(std::uint32_t count, std::uint32_t unit) {
  return (count + unit - 1) / unit * unit;
}

// Four elements of input and residual, zeros beyond the chunk's end.
struct FourTerms {
  simt::Wide<float> input;
  simt::Wide<float> state;
};

TERN_DEVICE FourTerms load_four(const EncodeChunk& chunk, std::uint32_t at) {
  FourTerms four{};
  const simt::Global<const float> input(chunk.input);
  const simt::Global<float> residual(chunk.residual);
  if (at + 4 <= chunk.elements) {
    four.input = input.load_wide(at);
    if (chunk.residual != nullptr) four.state = residual.load_wide(at);
    return four;
  }
  for (unsigned k = 0; k < 4 && at + k < chunk.elements; ++k) {
    four.input.of[k] = input.load(at + k);
    if (chunk.residual != nullptr) four.state.of[k] = residual.load(at + k);
  }
  return four;
}

// Without a residual a sum is the input, also where that is -0.
TERN_DEVICE simt::Wide<float> sums_of(const EncodeChunk& chunk, const FourTerms& four) {
  simt::Wide<float> sums = four.input;
  if (chunk.residual == nullptr) return sums;
  for (unsigned k = 0; k < 4; ++k) sums.of[k] += four.state.of[k] * chunk.state_scale;
  return sums;
}

// Adds terms to a sum in their order, while the next ones are loaded: to wait for one load after
// another would take longer than all else that an encoder does.
template <typename Number, typename Load>
TERN_DEVICE Number added_in_order(Number sum, std::uint32_t count, Load load) {
  constexpr std::uint32_t kAtOnce = 16;
  const std::uint32_t whole = count / kAtOnce * kAtOnce;
  Number next[kAtOnce] = {};
  for (std::uint32_t i = 0; whole != 0 && i < kAtOnce; ++i) next[i] = load(i);
  for (std::uint32_t first = 0; first < whole; first += kAtOnce) {
    Number terms[kAtOnce];
    for (std::uint32_t i = 0; i < kAtOnce; ++i) terms[i] = next[i];
    // One question for all of them: each by itself would take longer than to load and to add it.
    if (first + kAtOnce < whole) {
      for (std::uint32_t i = 0; i < kAtOnce; ++i) next[i] = load(first + kAtOnce + i);
    }
    for (std::uint32_t i = 0; i < kAtOnce; ++i) sum += terms[i];
  }
  for (std::uint32_t i = whole; i < count; ++i) sum += load(i);
  return sum;
}

// Writes what is left of four elements to the residual, if there is one.
TERN_DEVICE void store_four(const EncodeChunk& chunk, std::uint32_t at,
                            const simt::Wide<float>& left) {
  if (chunk.residual == nullptr) return;
  const simt::Global<float> residual(chunk.residual);
  if (at + 4 <= chunk.elements) {
    residual.store_wide(at, left);
    return;
  }
  for (unsigned k = 0; k < 4 && at + k < chunk.elements; ++k) {
    residual.store(at + k, left.of[k]);
  }
}

// The sums of a chunk, kept in shared memory or, without, loaded again when they are needed.
// kRow elements have one largest magnitude; 32 or 64.
template <bool kOnChip, unsigned kRow>
class ChunkSums {
 public:
  TERN_DEVICE ChunkSums(const EncodeChunk& chunk, simt::Arena& arena)
      : chunk_(chunk),
        room_(kOnChip ? rounded_up(chunk.elements, kResidualLanes) : 0),
        sums_(arena.take<float>(room_ + 4)),
        squares_(arena.take<float>(std::size_t{8} * simt::threads())),
        rows_(arena.take<std::uint32_t>(row_count() == 0 ? 1 : row_count())) {}

  TERN_DEVICE std::uint32_t row_count() const { return (chunk_.elements + kRow - 1) / kRow; }

  // Ends with a barrier, after which the rows can be read. The energy of lane i is with thread i.
  TERN_DEVICE void scan() {
    const std::uint32_t tile = 4 * simt::threads();
    std::uint32_t half = 0;
    FourTerms next = load_four(chunk_, 4 * simt::thread());
    FourTerms after = load_four(chunk_, tile + 4 * simt::thread());
    for (std::uint32_t begin = 0; begin < chunk_.elements; begin += tile) {
      const std::uint32_t at = begin + 4 * simt::thread();
      const FourTerms four = next;
      next = after;
      // On its way while two tiles are worked on.
      after = load_four(chunk_, at + 2 * tile);
      const simt::Wide<float> sum = sums_of(chunk_, four);
      if (at < room_) sums_.store_wide(at, sum);
      note_largest(at, sum);
      simt::Wide<float> squares = four.input;
      for (float& square : squares.of) square *= square;
      squares_.store_wide(half + 4 * simt::thread(), squares);
      // The other half is written next, so that one barrier for each tile is enough.
      simt::barrier();
      add_squares(half);
      half = tile - half;
    }
  }

  TERN_DEVICE float energy() const { return energy_; }
  TERN_DEVICE std::uint32_t row(std::uint32_t i) const { return rows_.load(i); }

  // Four sums; `at` is a multiple of four.
  TERN_DEVICE simt::Wide<float> four(std::uint32_t at) const {
    if constexpr (kOnChip) return sums_.load_wide(at);
    return sums_of(chunk_, load_four(chunk_, at));
  }
  TERN_DEVICE float one(std::uint32_t at) const {
    if constexpr (kOnChip) return sums_.load(at);
    const simt::Global<const float> input(chunk_.input);
    const float value = input.load(at);
    if (chunk_.residual == nullptr) return value;
    const simt::Global<float> residual(chunk_.residual);
    return value + residual.load(at) * chunk_.state_scale;
  }

  // What takes the place of sums once they are used.
  TERN_DEVICE const simt::Shared<float>& shared() const { return sums_; }

 private:
  TERN_DEVICE void note_largest(std::uint32_t at, const simt::Wide<float>& sum) {
    constexpr unsigned kLanes = kRow / 4;
    std::uint32_t largest = 0;
    for (const float value : sum.of) {
      const std::uint32_t bits = magnitude_of(value);
      largest = largest < bits ? bits : largest;
    }
    // Of a part of the warp by exchanges: one instruction does it for whole warps alone.
    for (unsigned distance = 1; distance < kLanes; distance *= 2) {
      const std::uint32_t other = simt::shuffle(largest, simt::lane() ^ distance);
      largest = largest < other ? other : largest;
    }
    if (simt::lane() % kLanes == 0 && at < chunk_.elements) rows_.store(at / kRow, largest);
  }

  // The first warp: lane i adds the elements i, i + 32, ... in their order.
  TERN_DEVICE void add_squares(std::uint32_t half) {
    if (simt::warp() != 0) return;
    energy_ = added_in_order(energy_, simt::threads() / 8, [&](std::uint32_t row) {
      return squares_.load(half + row * simt::kWarp + simt::lane());
    });
  }

  const EncodeChunk& chunk_;
  std::uint32_t room_;  // whole rows of the lanes of energies, zeros beyond the chunk's end
  simt::Shared<float> sums_;
  simt::Shared<float> squares_;
  simt::Shared<std::uint32_t> rows_;
  float energy_ = 0.0f;
};

// Sums of squares of what is left, in 64 lanes: thread i of the first 64 adds the elements i,
// i + 64, ... in their order.
class LeftEnergy {
 public:
  TERN_DEVICE void add_rows(const simt::Shared<float>& left, std::uint32_t begin,
                            std::uint32_t rows) {
    if (simt::thread() >= kResidualLanes) return;
    lane_ = added_in_order(lane_, rows, [&](std::uint32_t row) {
      const float value = left.load(begin + row * kResidualLanes + simt::thread());
      return value * value;
    });
  }
  TERN_DEVICE void add(float left) { lane_ += left * left; }
  TERN_DEVICE float lane() const { return lane_; }

 private:
  float lane_ = 0.0f;
};

// The lanes of both energies meet in shared memory and are added in their order by one thread.
class EnergySums {
 public:
  TERN_DEVICE explicit EnergySums(simt::Arena& arena)
      : lanes_(arena.take<float>(kScanLanes + kResidualLanes)) {}

  // Ends with a barrier, after which the first thread may add up.
  TERN_DEVICE void gather(float input, float left) const {
    if (simt::warp() == 0) lanes_.store(simt::lane(), input);
    if (simt::thread() < kResidualLanes) lanes_.store(kScanLanes + simt::thread(), left);
    simt::barrier();
  }
  TERN_DEVICE double input() const { return sum(0, kScanLanes); }
  TERN_DEVICE double left() const { return sum(kScanLanes, kResidualLanes); }

 private:
  TERN_DEVICE double sum(std::uint32_t begin, std::uint32_t count) const {
    return added_in_order(
        0.0, count, [&](std::uint32_t i) { return static_cast<double>(lanes_.load(begin + i)); });
  }

  simt::Shared<float> lanes_;
};

}  // namespace tern::codec::device
