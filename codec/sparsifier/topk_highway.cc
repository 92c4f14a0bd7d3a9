// The topk kernels for every vector target.
//
// Gathering makes a mask of 64 elements and then writes positions from it four at a time whether
// there are four or not: at one in a hundred a branch on every kept element would be guessed wrong
// about once per element, and one on "more than four" is not.
#include "codec/target/compiled.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/sparsifier/topk_highway.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <bit>
#include <cstring>

#include "codec/sparsifier/topk_kernels.h"
#include "codec/target/highway_table.h"

HWY_BEFORE_NAMESPACE();
namespace tern::codec::sparsifier::HWY_NAMESPACE {

#if TERN_CODEC_HAS_KERNELS

namespace hn = hwy::HWY_NAMESPACE;

using KeyTag = hn::CappedTag<std::int32_t, 16>;
constexpr KeyTag kKeys;
constexpr std::size_t kLanes = hn::MaxLanes(KeyTag());
constexpr std::size_t kGroup = 64;

// Keys are below 2^31, so that the signed comparison, which every target has, is right.
HWY_INLINE auto load_keys(const float* values) noexcept {
  const hn::RebindToFloat<KeyTag> floats;
  return hn::And(hn::BitCast(kKeys, hn::LoadU(floats, values)),
                 hn::Set(kKeys, static_cast<std::int32_t>(kMagnitude)));
}

std::size_t count_at_least(const float* values, std::size_t count,
                           std::uint32_t threshold) noexcept {
  if (threshold == 0) return count;
  const auto below = hn::Set(kKeys, static_cast<std::int32_t>(threshold - 1));
  // A true lane is -1.
  auto first = hn::Zero(kKeys);
  auto second = hn::Zero(kKeys);
  std::size_t i = 0;
  for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
    first = hn::Sub(first, hn::VecFromMask(kKeys, hn::Gt(load_keys(values + i), below)));
    second = hn::Sub(second, hn::VecFromMask(kKeys, hn::Gt(load_keys(values + i + kLanes), below)));
  }
  auto found = static_cast<std::size_t>(hn::GetLane(hn::SumOfLanes(kKeys, hn::Add(first, second))));
  for (; i < count; ++i) found += key_of(values[i]) >= threshold ? 1 : 0;
  return found;
}

template <typename Below>
HWY_INLINE std::uint64_t group_mask(const float* values, Below below) noexcept {
  std::uint64_t mask = 0;
  for (std::size_t i = 0; i < kGroup; i += kLanes) {
    std::uint8_t bits[8] = {};
    hn::StoreMaskBits(kKeys, hn::Gt(load_keys(values + i), below), bits);
    std::uint16_t low;
    std::memcpy(&low, bits, sizeof(low));
    mask |= static_cast<std::uint64_t>(low) << i;
  }
  return mask;
}

std::size_t gather(std::span<const float> all, std::uint32_t threshold,
                   std::span<std::uint32_t> room) noexcept {
  const float* const values = all.data();
  const std::size_t count = all.size();
  std::uint32_t* const positions = room.data();
  const std::size_t limit = room.size();
  std::size_t made = 0;
  std::size_t i = 0;
  if (threshold != 0) {
    const auto below = hn::Set(kKeys, static_cast<std::int32_t>(threshold - 1));
    for (; i + kGroup <= count && made + kGroup <= limit; i += kGroup) {
      std::uint64_t mask = group_mask(values + i, below);
      const auto found = static_cast<std::size_t>(std::popcount(mask));
      for (std::size_t at = made; at < made + found; at += 4) {
        for (std::size_t j = 0; j < 4; ++j) {
          // An empty mask gives 64 or anything else; what is written then is written over.
          positions[at + j] =
              static_cast<std::uint32_t>(i) + static_cast<std::uint32_t>(std::countr_zero(mask));
          mask &= mask - 1;
        }
      }
      made += found;
    }
  }
  for (; i < count && made < limit; ++i) {
    if (key_of(values[i]) >= threshold) positions[made++] = static_cast<std::uint32_t>(i);
  }
  return made;
}

const TopkKernels kKernels = {count_at_least, gather};
inline const TopkKernels* topk_table() noexcept { return &kKernels; }

#else

inline const TopkKernels* topk_table() noexcept { return nullptr; }

#endif

}  // namespace tern::codec::sparsifier::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tern::codec::sparsifier {

TERN_CODEC_HIGHWAY_TABLE(TopkKernels, topk_highway, topk_table)

const TopkKernels& topk_kernels() noexcept { return target::choose(topk_highway, kTopkScalar); }

}  // namespace tern::codec::sparsifier
#endif
