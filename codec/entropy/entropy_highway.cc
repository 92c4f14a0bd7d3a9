// The loops of the entropy coders for every vector target. The Huffman loops are plain C++: what
// they gain from a newer target is shifts by any register (BMI2).
#include "codec/target/compiled.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/entropy/entropy_highway.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "codec/entropy/entropy_kernels.h"
#include "codec/target/highway_table.h"

HWY_BEFORE_NAMESPACE();
namespace tern::codec::entropy::HWY_NAMESPACE {

#if TERN_CODEC_HAS_KERNELS

namespace hn = hwy::HWY_NAMESPACE;

using ByteTag = hn::CappedTag<std::uint8_t, 64>;
constexpr ByteTag kBytes;
constexpr std::size_t kByteLanes = hn::MaxLanes(ByteTag());

HWY_INLINE std::uint64_t load_big_endian(const std::uint8_t* in) noexcept {
  std::uint64_t value;
  std::memcpy(&value, in, sizeof(value));
  return __builtin_bswap64(value);
}

HWY_INLINE void store_big_endian(std::uint8_t* out, std::uint64_t value) noexcept {
  value = __builtin_bswap64(value);
  std::memcpy(out, &value, sizeof(value));
}

// Encoder ----------------------------------------------------------------------------------------

// Bits that were not written yet: `bits` of them, fewer than eight, at the top of `pending`.
struct BitWriter {
  std::uint64_t pending = 0;
  std::uint64_t bits = 0;

  // Five codes are 55 bits at most and find room beside the pending ones. They are joined before
  // they touch the pending ones, so that groups overlap. Stores eight bytes.
  HWY_INLINE std::uint8_t* put_five(const std::uint8_t* in, const EncodeTable& table,
                                    std::uint8_t* out) noexcept {
    std::uint64_t joined = 0;
    std::uint64_t sum = 0;
    HWY_UNROLL(5)
    for (std::size_t i = 0; i < 5; ++i) {
      const std::uint64_t entry = table[in[i]];
      joined = joined << (entry & 63) | entry >> 6;
      sum += entry;
    }
    bits += sum & 63;
    // Two shifts, because there may be nothing to place.
    pending |= joined << 1 << ((63 - bits) & 63);
    store_big_endian(out, pending);
    pending <<= bits & 56;
    out += bits >> 3;
    bits &= 7;
    return out;
  }
};

std::uint8_t* encode_stream(std::span<const std::uint8_t> in, const EncodeTable& table,
                            std::span<std::uint8_t> out) noexcept {
  BitWriter writer;
  std::uint8_t* to = out.data();
  std::uint8_t* const end = to + out.size();
  std::size_t i = 0;
  for (; i + 10 <= in.size() && end - to >= 16; i += 10) {
    to = writer.put_five(in.data() + i, table, to);
    to = writer.put_five(in.data() + i + 5, table, to);
  }
  const std::uint64_t pending = writer.bits == 0 ? 0 : writer.pending >> (64 - writer.bits);
  return encode_rest(in.subspan(i), table, {pending, writer.bits}, {to, end});
}

// Decoder ----------------------------------------------------------------------------------------

// One look gives up to six symbols and takes up to eleven bits; after five looks the 57 bits that a
// load at a byte's bound is sure to hold are used up. Four streams keep the processor busy while
// each waits for its table.
constexpr std::size_t kLooks = 5;
constexpr std::size_t kSymbolsPerRound = kLooks * DecodeTable::kMostSymbols;
constexpr std::size_t kOutRoom = kSymbolsPerRound + 2;  // the last store writes eight bytes
constexpr std::size_t kBitsPerRound = kLooks * kMaxCodeBits;

struct Cursor {
  const std::uint8_t* in;
  std::uint64_t bit;
  std::uint8_t* out;
  std::uint8_t* out_end;

  // Rounds that stay inside the spans whatever the bits say.
  HWY_INLINE std::size_t safe_rounds(const std::uint8_t* in_end) const noexcept {
    const auto out_room = static_cast<std::size_t>(out_end - out);
    const auto in_bytes = static_cast<std::size_t>(in_end - in);
    const std::size_t in_used = bit / 8;
    if (out_room < kOutRoom || in_bytes < in_used + 8) return 0;
    const std::size_t by_out = (out_room - kOutRoom) / kSymbolsPerRound + 1;
    const std::size_t by_in = (in_bytes - in_used - 8) / (kBitsPerRound / 8 + 1) + 1;
    return std::min(by_out, by_in);
  }
};

template <std::size_t kCount>
HWY_INLINE void decode_rounds(Cursor* cursors, std::size_t rounds,
                              const std::uint64_t* table) noexcept {
  const std::uint8_t* in[kCount];
  std::uint8_t* out[kCount];
  std::uint64_t bit[kCount];
  HWY_UNROLL(4)
  for (std::size_t k = 0; k < kCount; ++k) {
    in[k] = cursors[k].in;
    out[k] = cursors[k].out;
    bit[k] = cursors[k].bit;
  }
  for (; rounds != 0; --rounds) {
    std::uint64_t window[kCount];
    HWY_UNROLL(4)
    for (std::size_t k = 0; k < kCount; ++k) {
      window[k] = load_big_endian(in[k] + bit[k] / 8) << (bit[k] & 7);
    }
    std::uint64_t sum[kCount] = {};
    HWY_UNROLL(5)
    for (std::size_t look = 0; look < kLooks; ++look) {
      HWY_UNROLL(4)
      for (std::size_t k = 0; k < kCount; ++k) {
        const std::uint64_t entry = table[window[k] >> (64 - kMaxCodeBits)];
        const std::uint64_t symbols = entry >> 8;
        std::memcpy(out[k], &symbols, sizeof(symbols));
        out[k] += entry >> 56;
        window[k] <<= entry & 63;
        sum[k] += entry;
      }
    }
    HWY_UNROLL(4)
    for (std::size_t k = 0; k < kCount; ++k) bit[k] += sum[k] & 63;
  }
  HWY_UNROLL(4)
  for (std::size_t k = 0; k < kCount; ++k) {
    cursors[k].out = out[k];
    cursors[k].bit = bit[k];
  }
}

bool decode_streams(const Streams& streams, const std::uint8_t* in_end,
                    const DecodeTable& table) noexcept {
  Cursor cursors[kStreams];
  for (std::size_t k = 0; k < kStreams; ++k) {
    const Stream& stream = streams[k];
    cursors[k] = {stream.in, 0, stream.out, stream.out + stream.out_bytes};
  }
  for (;;) {
    std::size_t rounds = cursors[0].safe_rounds(in_end);
    for (std::size_t k = 1; k < kStreams; ++k) {
      rounds = std::min(rounds, cursors[k].safe_rounds(in_end));
    }
    if (rounds == 0) break;
    decode_rounds<kStreams>(cursors, rounds, table.entries.data());
  }
  for (std::size_t k = 0; k < kStreams; ++k) {
    while (const std::size_t rounds = cursors[k].safe_rounds(in_end)) {
      decode_rounds<1>(cursors + k, rounds, table.entries.data());
    }
    const auto done = static_cast<std::size_t>(cursors[k].out - streams[k].out);
    if (!decode_rest(streams[k], cursors[k].bit, done, table)) return false;
  }
  return true;
}

// Scans ------------------------------------------------------------------------------------------

void add_unseen(const std::uint8_t* in, std::size_t count, Presence& presence,
                Histogram& histogram) noexcept {
  alignas(16) static constexpr std::uint8_t kBit[16] = {1, 2, 4, 8, 16, 32, 64, 128,
                                                        1, 2, 4, 8, 16, 32, 64, 128};
  const auto bit_of = hn::LoadDup128(kBytes, kBit);
  const auto low_nibble = hn::Set(kBytes, 15);
  auto lower = hn::LoadDup128(kBytes, presence.by_low[0].data());
  auto upper = hn::LoadDup128(kBytes, presence.by_low[1].data());
  const auto unseen = [&](const std::uint8_t* at) HWY_ATTR {
    const auto bytes = hn::LoadU(kBytes, at);
    const auto low = hn::And(bytes, low_nibble);
    const auto high = hn::ShiftRight<4>(bytes);
    const auto is_upper = hn::Gt(bytes, hn::Set(kBytes, 127));
    const auto row = hn::IfThenElse(is_upper, hn::TableLookupBytes(upper, low),
                                    hn::TableLookupBytes(lower, low));
    return hn::Eq(hn::And(row, hn::TableLookupBytes(bit_of, high)), hn::Zero(kBytes));
  };
  std::size_t i = 0;
  for (; i + 2 * kByteLanes <= count; i += 2 * kByteLanes) {
    if (HWY_LIKELY(hn::AllFalse(kBytes, hn::Or(unseen(in + i), unseen(in + i + kByteLanes))))) {
      continue;
    }
    kScalarEntropy.add_unseen(in + i, 2 * kByteLanes, presence, histogram);
    lower = hn::LoadDup128(kBytes, presence.by_low[0].data());
    upper = hn::LoadDup128(kBytes, presence.by_low[1].data());
  }
  kScalarEntropy.add_unseen(in + i, count - i, presence, histogram);
}

void equal_masks(const std::uint8_t* in, std::size_t words, std::uint8_t value,
                 std::uint64_t* masks) noexcept {
  const auto wanted = hn::Set(kBytes, value);
  for (std::size_t word = 0; word < words; ++word) {
    alignas(8) std::uint8_t bits[8 + 8] = {};
    for (std::size_t i = 0; i < 64; i += kByteLanes) {
      hn::StoreMaskBits(kBytes, hn::Eq(hn::LoadU(kBytes, in + 64 * word + i), wanted),
                        bits + i / 8);
    }
    std::memcpy(masks + word, bits, sizeof(*masks));
  }
}

const EntropyKernels kKernels = {encode_stream, decode_streams, add_unseen, equal_masks};
inline const EntropyKernels* entropy_table() noexcept { return &kKernels; }

#else

inline const EntropyKernels* entropy_table() noexcept { return nullptr; }

#endif

}  // namespace tern::codec::entropy::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tern::codec::entropy {

TERN_CODEC_HIGHWAY_TABLE(EntropyKernels, entropy_highway, entropy_table)

}  // namespace tern::codec::entropy
#endif
