// The onebit kernels for every vector target. Blocks of 16 elements; the rest is element by
// element.
#include "codec/target/compiled.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/quantizer/onebit_highway.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <bit>
#include <cstring>

#include "codec/quantizer/onebit_kernels.h"
#include "codec/target/highway_table.h"

HWY_BEFORE_NAMESPACE();
namespace tern::codec::quantizer::HWY_NAMESPACE {

#if TERN_CODEC_HAS_KERNELS

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::CappedTag<float, 8>;
using DoubleTag = hn::CappedTag<double, 4>;
using HalfTag = hn::Rebind<float, DoubleTag>;
constexpr FloatTag kFloats;
constexpr DoubleTag kDoubles;
constexpr HalfTag kHalves;
constexpr std::size_t kFloatLanes = hn::MaxLanes(FloatTag());
constexpr std::size_t kDoubleLanes = hn::MaxLanes(DoubleTag());
constexpr std::size_t kGroup = kSideLanes;

// The sums of one group. Adding the zero of the other side leaves every lane as it is, because no
// lane is ever -0: it begins as +0, and +0 + -0 is +0.
HWY_INLINE void add_sides(const float* values, double* below, double* above) noexcept {
  for (std::size_t i = 0; i < kGroup; i += kDoubleLanes) {
    const auto value = hn::PromoteTo(kDoubles, hn::LoadU(kHalves, values + i));
    const auto zero = hn::Zero(kDoubles);
    hn::StoreU(hn::Add(hn::LoadU(kDoubles, below + i), hn::Min(value, zero)), kDoubles, below + i);
    hn::StoreU(hn::Add(hn::LoadU(kDoubles, above + i), hn::Max(value, zero)), kDoubles, above + i);
  }
}

HWY_INLINE std::uint32_t group_bits(const float* values) noexcept {
  std::uint32_t mask = 0;
  for (std::size_t i = 0; i < kGroup; i += kFloatLanes) {
    std::uint8_t bits[8] = {};
    hn::StoreMaskBits(kFloats, hn::Ge(hn::LoadU(kFloats, values + i), hn::Zero(kFloats)), bits);
    mask |= static_cast<std::uint32_t>(bits[0]) << i;
  }
  return mask;
}

void encode(const float* values, std::size_t count, std::uint8_t* bits, SideSums& sums) noexcept {
  SideSums local = sums;
  std::size_t i = 0;
  for (; i + kGroup <= count; i += kGroup) {
    add_sides(values + i, local.below, local.above);
    const auto mask = static_cast<std::uint16_t>(group_bits(values + i));
    local.above_count += static_cast<std::size_t>(std::popcount(mask));
    std::memcpy(bits + i / 8, &mask, sizeof(mask));
  }
  sums = local;
  kOnebitScalar.encode(values + i, count - i, bits + i / 8, sums);
}

void decode(const std::uint8_t* bits, std::size_t count, const Means& means, float* out) noexcept {
  const auto low = hn::Set(kFloats, means.below);
  const auto high = hn::Set(kFloats, means.above);
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (std::size_t j = 0; j < 8; j += kFloatLanes) {
      const std::uint8_t mask[8] = {static_cast<std::uint8_t>(bits[i / 8] >> j)};
      hn::StoreU(hn::IfThenElse(hn::LoadMaskBits(kFloats, mask), high, low), kFloats, out + i + j);
    }
  }
  kOnebitScalar.decode(bits + i / 8, count - i, means, out + i);
}

const OnebitKernels kKernels = {encode, decode};
inline const OnebitKernels* onebit_table() noexcept { return &kKernels; }

#else

inline const OnebitKernels* onebit_table() noexcept { return nullptr; }

#endif

}  // namespace tern::codec::quantizer::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tern::codec::quantizer {

TERN_CODEC_HIGHWAY_TABLE(OnebitKernels, onebit_highway, onebit_table)

const OnebitKernels& onebit_kernels() noexcept {
  return target::choose(onebit_highway, kOnebitScalar);
}

}  // namespace tern::codec::quantizer
#endif
