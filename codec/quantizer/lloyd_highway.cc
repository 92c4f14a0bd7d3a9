// The lloyd kernels for every vector target. Where a vector holds all levels, a permutation looks
// them up, and a binary search finds how many middles lie below a value. Where it does not, middles
// are counted one by one for four vectors of values together, without a branch, and levels are
// gathered.
#include "codec/target/compiled.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/quantizer/lloyd_highway.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <array>

#include "codec/quantizer/bit_packing-inl.h"
#include "codec/quantizer/lloyd_kernels.h"
#include "codec/target/highway_table.h"

HWY_BEFORE_NAMESPACE();
namespace tern::codec::quantizer::HWY_NAMESPACE {

#if TERN_CODEC_HAS_KERNELS

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::CappedTag<float, 16>;
using IntTag = hn::RebindToSigned<FloatTag>;
constexpr FloatTag kFloats;
constexpr IntTag kInts;
constexpr std::size_t kLanes = hn::MaxLanes(FloatTag());

// Requires: middle_count + 1 == 2^kSteps <= kLanes.
template <unsigned kSteps>
HWY_INLINE std::size_t search_middles(const float* __restrict values, std::size_t count,
                                      const float* __restrict middles,
                                      std::uint8_t* __restrict codes) noexcept {
  constexpr std::int32_t kLevels = 1 << kSteps;
  const hn::Rebind<std::uint8_t, IntTag> narrow;
  HWY_ALIGN float padded[kLanes] = {};
  for (std::int32_t j = 0; j + 1 < kLevels; ++j) padded[j] = middles[j];
  const auto table = hn::Load(kFloats, padded);
  const auto first = hn::Set(kFloats, padded[kLevels / 2 - 1]);
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const auto value = hn::LoadU(kFloats, values + i);
    const auto step_if_above = [&](auto middle, std::int32_t step) HWY_ATTR {
      const auto above = hn::RebindMask(kInts, hn::Gt(value, middle));
      return hn::IfThenElseZero(above, hn::Set(kInts, step));
    };
    auto below = step_if_above(first, kLevels / 2);
    HWY_UNROLL(4)
    for (std::int32_t step = kLevels / 4; step != 0; step /= 2) {
      const auto at = hn::IndicesFromVec(kFloats, hn::Add(below, hn::Set(kInts, step - 1)));
      below = hn::Add(below, step_if_above(hn::TableLookupLanes(table, at), step));
    }
    hn::StoreU(hn::DemoteTo(narrow, below), narrow, codes + i);
  }
  return i;
}

HWY_INLINE std::size_t count_middles(const float* __restrict values, std::size_t count,
                                     std::span<const float> all_middles,
                                     std::uint8_t* __restrict codes) noexcept {
  const float* __restrict middles = all_middles.data();
  const std::size_t middle_count = all_middles.size();
  const hn::Rebind<std::uint8_t, IntTag> narrow;
  std::size_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes) {
    const auto value0 = hn::LoadU(kFloats, values + i);
    const auto value1 = hn::LoadU(kFloats, values + i + kLanes);
    const auto value2 = hn::LoadU(kFloats, values + i + 2 * kLanes);
    const auto value3 = hn::LoadU(kFloats, values + i + 3 * kLanes);
    auto below0 = hn::Zero(kInts);
    auto below1 = below0;
    auto below2 = below0;
    auto below3 = below0;
    for (std::size_t j = 0; j < middle_count; ++j) {
      const auto middle = hn::Set(kFloats, middles[j]);
      // A true lane is -1.
      const auto one_if = [&](auto value) HWY_ATTR {
        return hn::BitCast(kInts, hn::VecFromMask(kFloats, hn::Gt(value, middle)));
      };
      below0 = hn::Sub(below0, one_if(value0));
      below1 = hn::Sub(below1, one_if(value1));
      below2 = hn::Sub(below2, one_if(value2));
      below3 = hn::Sub(below3, one_if(value3));
    }
    hn::StoreU(hn::DemoteTo(narrow, below0), narrow, codes + i);
    hn::StoreU(hn::DemoteTo(narrow, below1), narrow, codes + i + kLanes);
    hn::StoreU(hn::DemoteTo(narrow, below2), narrow, codes + i + 2 * kLanes);
    hn::StoreU(hn::DemoteTo(narrow, below3), narrow, codes + i + 3 * kLanes);
  }
  return i;
}

void assign(std::span<const float> values, std::span<const float> middles,
            std::uint8_t* __restrict codes) noexcept {
  std::size_t done = 0;
  if constexpr (kLanes >= 16) {
    if (middles.size() == 15) {
      done = search_middles<4>(values.data(), values.size(), middles.data(), codes);
    }
  }
  if constexpr (kLanes >= 8) {
    if (middles.size() == 7) {
      done = search_middles<3>(values.data(), values.size(), middles.data(), codes);
    }
  }
  if (done == 0) done = count_middles(values.data(), values.size(), middles, codes);
  kLloydScalar.assign(values.subspan(done), middles, codes + done);
}

void look_up(std::span<const std::uint8_t> all_codes, std::span<const float> all_levels,
             float* __restrict out) noexcept {
  const std::uint8_t* __restrict codes = all_codes.data();
  const float* __restrict levels = all_levels.data();
  const std::size_t count = all_codes.size();
  std::size_t i = 0;
  if (all_levels.size() <= kLanes) {
    const hn::Rebind<std::uint8_t, IntTag> narrow;
    HWY_ALIGN float padded[kLanes] = {};
    for (std::size_t j = 0; j < all_levels.size(); ++j) padded[j] = levels[j];
    const auto table = hn::Load(kFloats, padded);
    for (; i + kLanes <= count; i += kLanes) {
      const auto at = hn::PromoteTo(kInts, hn::LoadU(narrow, codes + i));
      hn::StoreU(hn::TableLookupLanes(table, hn::IndicesFromVec(kFloats, at)), kFloats, out + i);
    }
  }
  for (; i < count; ++i) out[i] = levels[codes[i]];
}

void pack(const std::uint8_t* codes, std::size_t count, unsigned bits, std::uint8_t* out) noexcept {
  constexpr std::array kPack = {pack_codes<1>, pack_codes<2>, pack_codes<3>,
                                pack_codes<4>, pack_codes<5>, pack_codes<6>};
  kPack[bits - 1](codes, count, out);
}

void unpack(const std::uint8_t* bytes, std::size_t count, unsigned bits,
            std::uint8_t* codes) noexcept {
  constexpr std::array kUnpack = {unpack_codes<1>, unpack_codes<2>, unpack_codes<3>,
                                  unpack_codes<4>, unpack_codes<5>, unpack_codes<6>};
  kUnpack[bits - 1](bytes, count, codes);
}

const LloydKernels kKernels = {assign, look_up, pack, unpack};
inline const LloydKernels* lloyd_table() noexcept { return &kKernels; }

#else

inline const LloydKernels* lloyd_table() noexcept { return nullptr; }

#endif

}  // namespace tern::codec::quantizer::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tern::codec::quantizer {

TERN_CODEC_HIGHWAY_TABLE(LloydKernels, lloyd_highway, lloyd_table)

const LloydKernels& lloyd_kernels() noexcept { return target::choose(lloyd_highway, kLloydScalar); }

}  // namespace tern::codec::quantizer
#endif
