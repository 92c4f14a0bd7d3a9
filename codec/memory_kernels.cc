// Explicit vectors for what sums energies, because the order of additions is part of the result;
// the rest is plain loops.
#include "codec/target/compiled.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/memory_kernels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <bit>

#include "codec/kernels.h"
#include "codec/memory_kernels.h"
#include "codec/target/highway_table.h"

HWY_BEFORE_NAMESPACE();
namespace tern::codec::HWY_NAMESPACE {

#if TERN_CODEC_HAS_KERNELS

namespace hn = hwy::HWY_NAMESPACE;

inline constexpr hn::ScalableTag<float> kMemoryFloats;
inline constexpr hn::ScalableTag<std::uint32_t> kMemoryBits;
inline constexpr std::size_t kMemoryLanes = HWY_LANES(float);
using MemoryFloat = hn::Vec<decltype(kMemoryFloats)>;
using MemoryBits = hn::Vec<decltype(kMemoryBits)>;
inline constexpr std::size_t kPrefetchAhead = 512;  // elements, to the second level

HWY_INLINE void note_tail(float value, std::uint32_t& largest) noexcept {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value) & 0x7fffffffu;
  largest = largest < bits ? bits : largest;
}

template <bool kWithState>
std::uint32_t compensate_all(const Sums& sums, float* sum, float* energy_lanes) noexcept {
  const auto [input, state, scale, count] = sums;
  constexpr std::size_t kVectors = kScanLanes / kMemoryLanes;
  MemoryFloat energy[kVectors];
  MemoryBits largest[kVectors];
  for (std::size_t v = 0; v < kVectors; ++v) {
    energy[v] = hn::LoadU(kMemoryFloats, energy_lanes + v * kMemoryLanes);
    largest[v] = hn::Zero(kMemoryBits);
  }
  const MemoryFloat factor = hn::Set(kMemoryFloats, scale);
  const MemoryBits magnitude = hn::Set(kMemoryBits, 0x7fffffffu);
  std::size_t i = 0;
  for (; i + kScanLanes <= count; i += kScanLanes) {
    for (std::size_t line = 0; line < kScanLanes; line += 16) {
      __builtin_prefetch(input + i + line + kPrefetchAhead, 0, 2);
      if constexpr (kWithState) __builtin_prefetch(state + i + line + kPrefetchAhead, 0, 2);
    }
    for (std::size_t v = 0; v < kVectors; ++v) {
      const std::size_t at = i + v * kMemoryLanes;
      MemoryFloat value = hn::LoadU(kMemoryFloats, input + at);
      energy[v] = hn::Add(energy[v], hn::Mul(value, value));
      if constexpr (kWithState) {
        value = hn::Add(value, hn::Mul(factor, hn::LoadU(kMemoryFloats, state + at)));
      }
      largest[v] = hn::Max(largest[v], hn::And(hn::BitCast(kMemoryBits, value), magnitude));
      hn::StoreU(value, kMemoryFloats, sum + at);
    }
  }
  auto most = largest[0];
  for (std::size_t v = 0; v < kVectors; ++v) {
    hn::StoreU(energy[v], kMemoryFloats, energy_lanes + v * kMemoryLanes);
    most = hn::Max(most, largest[v]);
  }
  std::uint32_t result = hn::GetLane(hn::MaxOfLanes(kMemoryBits, most));
  for (std::size_t lane = 0; i + lane < count; ++lane) {
    float value = input[i + lane];
    energy_lanes[lane] += value * value;
    if constexpr (kWithState) value = value + scale * state[i + lane];
    note_tail(value, result);
    sum[i + lane] = value;
  }
  return result;
}

std::uint32_t compensate(const Sums& sums, float* sum, float* energy_lanes) noexcept {
  return sums.state == nullptr ? compensate_all<false>(sums, sum, energy_lanes)
                               : compensate_all<true>(sums, sum, energy_lanes);
}

// What is left of sums is their difference to what the reader sees, or they themselves.
enum class Left { difference, sum, unwanted };

template <Left kLeft>
void leave_all(std::span<const float> sums, const float* decoded, float* left,
               float* energy_lanes) noexcept {
  const float* const sum = sums.data();
  const std::size_t count = sums.size();
  constexpr std::size_t kVectors = kResidualLanes / kMemoryLanes;
  MemoryFloat energy[kVectors];
  for (std::size_t v = 0; v < kVectors; ++v) {
    energy[v] = hn::LoadU(kMemoryFloats, energy_lanes + v * kMemoryLanes);
  }
  std::size_t i = 0;
  for (; i + kResidualLanes <= count; i += kResidualLanes) {
    for (std::size_t v = 0; v < kVectors; ++v) {
      const std::size_t at = i + v * kMemoryLanes;
      MemoryFloat value = hn::LoadU(kMemoryFloats, sum + at);
      if constexpr (kLeft == Left::difference) {
        value = hn::Sub(value, hn::LoadU(kMemoryFloats, decoded + at));
      }
      if constexpr (kLeft != Left::unwanted) hn::StoreU(value, kMemoryFloats, left + at);
      energy[v] = hn::Add(energy[v], hn::Mul(value, value));
    }
  }
  for (std::size_t v = 0; v < kVectors; ++v) {
    hn::StoreU(energy[v], kMemoryFloats, energy_lanes + v * kMemoryLanes);
  }
  for (std::size_t lane = 0; i + lane < count; ++lane) {
    float value = sum[i + lane];
    if constexpr (kLeft == Left::difference) value -= decoded[i + lane];
    if constexpr (kLeft != Left::unwanted) left[i + lane] = value;
    energy_lanes[lane] += value * value;
  }
}

void leave(std::span<const float> sum, const float* decoded, float* left,
           float* energy_lanes) noexcept {
  leave_all<Left::difference>(sum, decoded, left, energy_lanes);
}

void keep(std::span<const float> sum, float* left, float* energy_lanes) noexcept {
  left == nullptr ? leave_all<Left::unwanted>(sum, nullptr, left, energy_lanes)
                  : leave_all<Left::sum>(sum, nullptr, left, energy_lanes);
}

void advance(const ShiftMove& move, float* __restrict shift, std::span<const float> differences,
             float* __restrict out) noexcept {
  const auto [scale, alpha] = move;
  const float* __restrict decoded = differences.data();
  for (std::size_t i = 0; i < differences.size(); ++i) {
    const float before = scale * shift[i];
    out[i] = before + decoded[i];
    shift[i] = before + alpha * decoded[i];
  }
}

void add(float* __restrict accumulator, const float* __restrict values,
         std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) accumulator[i] += values[i];
}

const MemoryKernels kMemory = {compensate, leave, keep, advance, add};
inline const MemoryKernels* memory_table() noexcept { return &kMemory; }

#else

inline const MemoryKernels* memory_table() noexcept { return nullptr; }

#endif

}  // namespace tern::codec::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tern::codec {

TERN_CODEC_HIGHWAY_TABLE(MemoryKernels, memory_highway, memory_table)

const MemoryKernels& memory_kernels() noexcept {
  return target::choose(memory_highway, kMemoryScalar);
}

}  // namespace tern::codec
#endif
