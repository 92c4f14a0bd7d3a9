// The loops for every vector target.
#include "codec/target/compiled.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/lossless/lossless_highway.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstring>

#include "codec/lossless/lossless_kernels.h"
#include "codec/target/highway_table.h"

HWY_BEFORE_NAMESPACE();
namespace tern::codec::lossless::HWY_NAMESPACE {

#if TERN_CODEC_HAS_KERNELS

namespace hn = hwy::HWY_NAMESPACE;

// Sixteen bytes at a time: narrowing crosses no lanes then, and the loops wait for memory anyway.
using Bytes16 = hn::FixedTag<std::uint8_t, 16>;
using Words8 = hn::FixedTag<std::uint16_t, 8>;
using Words4 = hn::FixedTag<std::uint32_t, 4>;
using Long = hn::CappedTag<std::uint8_t, 64>;
constexpr Bytes16 kBytes;
constexpr Words8 kWords16;
constexpr Words4 kWords32;
constexpr Long kLong;
constexpr std::size_t kLongBytes = hn::MaxLanes(Long());

void split16(const std::uint8_t* in, std::size_t count, std::uint8_t* low,
             std::uint8_t* high) noexcept {
  // Low bytes to the front, high bytes to the back.
  alignas(16) static constexpr std::uint8_t kOrder[16] = {0, 2, 4, 6, 8, 10, 12, 14,
                                                          1, 3, 5, 7, 9, 11, 13, 15};
  const auto order = hn::Load(kBytes, kOrder);
  const hn::FixedTag<std::uint64_t, 2> halves;
  std::size_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const auto turned = [&](std::size_t at) HWY_ATTR {
      const auto words = hn::BitCast(kWords16, hn::LoadU(kBytes, in + 2 * at));
      const auto result = hn::Or(hn::ShiftLeft<1>(words), hn::ShiftRight<15>(words));
      return hn::BitCast(halves, hn::TableLookupBytes(hn::BitCast(kBytes, result), order));
    };
    const auto first = turned(i);
    const auto second = turned(i + 8);
    hn::StoreU(hn::BitCast(kBytes, hn::InterleaveLower(halves, first, second)), kBytes, low + i);
    hn::StoreU(hn::BitCast(kBytes, hn::InterleaveUpper(halves, first, second)), kBytes, high + i);
  }
  kScalarLossless.split16(in + 2 * i, count - i, low + i, high + i);
}

void join16(const std::uint8_t* low, const std::uint8_t* high, std::size_t count,
            std::uint8_t* out) noexcept {
  std::size_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const auto lows = hn::LoadU(kBytes, low + i);
    const auto highs = hn::LoadU(kBytes, high + i);
    const auto put = [&](auto mixed, std::size_t at) HWY_ATTR {
      const auto words = hn::BitCast(kWords16, mixed);
      const auto result = hn::Or(hn::ShiftRight<1>(words), hn::ShiftLeft<15>(words));
      hn::StoreU(hn::BitCast(kBytes, result), kBytes, out + 2 * at);
    };
    put(hn::InterleaveLower(kBytes, lows, highs), i);
    put(hn::InterleaveUpper(kBytes, lows, highs), i + 8);
  }
  kScalarLossless.join16(low + i, high + i, count - i, out + 2 * i);
}

void split32(const std::uint8_t* in, std::size_t count, std::uint8_t* low,
             std::uint8_t* high) noexcept {
  // Three lower bytes of each word to the front, the four highest ones to the end.
  alignas(16) static constexpr std::uint8_t kOrder[16] = {0,  1,  2,  4,  5, 6, 8,  9,
                                                          10, 12, 13, 14, 3, 7, 11, 15};
  const auto order = hn::Load(kBytes, kOrder);
  std::size_t i = 0;
  // Each store is of 16 bytes, of which the next one overwrites four: two elements to spare.
  for (; i + 4 + 2 <= count; i += 4) {
    const auto words = hn::BitCast(kWords32, hn::LoadU(kBytes, in + 4 * i));
    const auto turned = hn::Or(hn::ShiftLeft<1>(words), hn::ShiftRight<31>(words));
    const auto sorted = hn::TableLookupBytes(hn::BitCast(kBytes, turned), order);
    hn::StoreU(sorted, kBytes, low + 3 * i);
    const auto exponents = hn::ExtractLane(hn::BitCast(kWords32, sorted), 3);
    std::memcpy(high + i, &exponents, sizeof(exponents));
  }
  kScalarLossless.split32(in + 4 * i, count - i, low + 3 * i, high + i);
}

void join32(const std::uint8_t* low, const std::uint8_t* high, std::size_t count,
            std::uint8_t* out) noexcept {
  alignas(16) static constexpr std::uint8_t kOrder[16] = {0, 1, 2, 12, 3, 4,  5,  13,
                                                          6, 7, 8, 14, 9, 10, 11, 15};
  const auto order = hn::Load(kBytes, kOrder);
  std::size_t i = 0;
  for (; i + 4 + 2 <= count; i += 4) {
    std::uint32_t exponents;
    std::memcpy(&exponents, high + i, sizeof(exponents));
    const auto lows = hn::BitCast(kWords32, hn::LoadU(kBytes, low + 3 * i));
    const auto both = hn::BitCast(kBytes, hn::InsertLane(lows, 3, exponents));
    const auto words = hn::BitCast(kWords32, hn::TableLookupBytes(both, order));
    const auto result = hn::Or(hn::ShiftRight<1>(words), hn::ShiftLeft<31>(words));
    hn::StoreU(hn::BitCast(kBytes, result), kBytes, out + 4 * i);
  }
  kScalarLossless.join32(low + 3 * i, high + i, count - i, out + 4 * i);
}

void exclusive_or(const std::uint8_t* a, const std::uint8_t* b, std::size_t bytes,
                  std::uint8_t* out) noexcept {
  std::size_t i = 0;
  for (; i + kLongBytes <= bytes; i += kLongBytes) {
    hn::StoreU(hn::Xor(hn::LoadU(kLong, a + i), hn::LoadU(kLong, b + i)), kLong, out + i);
  }
  kScalarLossless.exclusive_or(a + i, b + i, bytes - i, out + i);
}

template <typename Word>
HWY_INLINE void changes(const std::uint8_t* a, const std::uint8_t* b, std::size_t words,
                        std::uint64_t* masks) noexcept {
  using Tag = hn::CappedTag<Word, 64 / sizeof(Word)>;
  constexpr Tag kTag;
  constexpr std::size_t kLanes = hn::MaxLanes(Tag());
  for (std::size_t word = 0; word < words; ++word) {
    std::uint64_t mask = 0;
    for (std::size_t i = 0; i < 64; i += kLanes) {
      const std::size_t at = (64 * word + i) * sizeof(Word);
      const auto load = [&](const std::uint8_t* bytes)
                            HWY_ATTR { return hn::BitCast(kTag, hn::LoadU(kLong, bytes + at)); };
      std::uint8_t bits[8] = {};
      hn::StoreMaskBits(kTag, hn::Ne(load(a), load(b)), bits);
      std::uint32_t low;
      std::memcpy(&low, bits, sizeof(low));
      mask |= std::uint64_t{low} << i;
    }
    masks[word] = mask;
  }
}

void changes16(const std::uint8_t* a, const std::uint8_t* b, std::size_t words,
               std::uint64_t* masks) noexcept {
  changes<std::uint16_t>(a, b, words, masks);
}

void changes32(const std::uint8_t* a, const std::uint8_t* b, std::size_t words,
               std::uint64_t* masks) noexcept {
  changes<std::uint32_t>(a, b, words, masks);
}

const LosslessKernels kKernels = {split16,      split32,   join16,   join32,
                                  exclusive_or, changes16, changes32};
inline const LosslessKernels* lossless_table() noexcept { return &kKernels; }

#else

inline const LosslessKernels* lossless_table() noexcept { return nullptr; }

#endif

}  // namespace tern::codec::lossless::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tern::codec::lossless {

TERN_CODEC_HIGHWAY_TABLE(LosslessKernels, lossless_highway, lossless_table)

}  // namespace tern::codec::lossless
#endif
