// The lloyd kernels for every vector target. Middles are counted one by one for four vectors of
// values together, without a branch; looking levels up is a plain loop of gathers.
#define HWY_DISABLED_TARGETS HWY_SSSE3

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/quantizer/lloyd_highway.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "codec/quantizer/lloyd_kernels.h"
#include "codec/target/highway_table.h"

HWY_BEFORE_NAMESPACE();
namespace tern::codec::quantizer::HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::CappedTag<float, 16>;
using IntTag = hn::RebindToSigned<FloatTag>;
constexpr FloatTag kFloats;
constexpr IntTag kInts;
constexpr std::size_t kLanes = hn::MaxLanes(FloatTag());

void assign(const float* __restrict values, std::size_t count, const float* __restrict middles,
            std::size_t middle_count, std::uint8_t* __restrict codes) noexcept {
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
  kLloydScalar.assign(values + i, count - i, middles, middle_count, codes + i);
}

void look_up(const std::uint8_t* __restrict codes, std::size_t count,
             const float* __restrict levels, float* __restrict out) noexcept {
  for (std::size_t i = 0; i < count; ++i) out[i] = levels[codes[i]];
}

const LloydKernels kKernels = {assign, look_up};
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
