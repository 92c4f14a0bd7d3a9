#include "wire/crc32c_folded.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <array>
#include <cstring>
#endif

namespace tern::wire {

#if defined(__x86_64__)
namespace {

// A processor has two units that can compute a CRC: the instruction `crc32`, eight bytes at a time,
// and the carry-less multiplication, which folds sixteen bytes onto those that come later (V. Gopal
// et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel, 2009).
// Neither waits for the other, so a block is cut in two: lanes that are folded, then streams for
// `crc32`. In a turn each stream takes two words, in the time in which four lanes are folded on AMD
// processors, where `crc32` is not pipelined; three streams cover its latency where it is.
constexpr std::size_t kLanes = 4;
constexpr std::size_t kLaneBytes = 16;
constexpr std::size_t kFoldedBytes = kLanes * kLaneBytes;  // in a turn
constexpr std::size_t kStreams = 3;
constexpr std::size_t kStreamBytes = 16;  // in a turn
constexpr std::size_t kTurnBytes = kFoldedBytes + kStreams * kStreamBytes;
constexpr std::size_t kLongTurns = 64;
constexpr std::size_t kShortTurns = 12;
static_assert(kShortTurns * kTurnBytes == kLeastFoldedBytes);
constexpr std::size_t kCacheLineBytes = 64;

// x^exponent modulo the Castagnoli polynomial; bit i stands for x^(31-i).
constexpr std::uint32_t power_of_x(std::size_t exponent) {
  constexpr std::uint32_t kPolynomial = 0x82f63b78;
  std::uint32_t value = std::uint32_t{1} << 31;
  for (std::size_t i = 0; i < exponent; ++i) {
    value = (value >> 1) ^ ((value & 1) != 0 ? kPolynomial : 0);
  }
  return value;
}

// What moves the two words of a lane by so many bits: a product of two reflected words has one
// factor x too many.
struct FoldBy {
  std::uint64_t earlier, later;
};
constexpr FoldBy fold_by(std::size_t bits) {
  return {std::uint64_t{power_of_x(bits + 63)} << 32, std::uint64_t{power_of_x(bits - 1)} << 32};
}

// What moves a CRC by so many bytes: the product has a factor x, and `crc32` multiplies by x^32.
constexpr std::uint64_t shift_by(std::size_t bytes) { return power_of_x(8 * bytes - 33); }

#define TERN_FOLDING [[gnu::target("sse4.2,pclmul")]]

TERN_FOLDING inline std::uint64_t word_at(const std::byte* at) {
  std::uint64_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

TERN_FOLDING inline __m128i lane_at(const std::byte* at) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
}

inline void fetch_turn(const std::byte* at) {
  for (std::size_t byte = 0; byte < kTurnBytes; byte += kCacheLineBytes) {
    _mm_prefetch(reinterpret_cast<const char*>(at + byte), _MM_HINT_T0);
  }
}

TERN_FOLDING inline __m128i constants(FoldBy by) {
  return _mm_set_epi64x(static_cast<long long>(by.later), static_cast<long long>(by.earlier));
}

TERN_FOLDING inline __m128i fold(__m128i lane, __m128i by, __m128i onto) {
  const __m128i earlier = _mm_clmulepi64_si128(lane, by, 0x00);
  const __m128i later = _mm_clmulepi64_si128(lane, by, 0x11);
  return _mm_xor_si128(_mm_xor_si128(earlier, later), onto);
}

TERN_FOLDING inline __m128i shift(std::uint64_t crc, std::uint64_t by) {
  return _mm_clmulepi64_si128(_mm_cvtsi64_si128(static_cast<long long>(crc)),
                              _mm_cvtsi64_si128(static_cast<long long>(by)), 0x00);
}

// Three streams of so many bytes, one behind the other.
template <std::size_t bytes>
struct Streams {
  const std::byte* next;
  const std::byte* ahead;  // what the turn fetches
  std::uint64_t crc0 = 0, crc1 = 0, crc2 = 0;

  TERN_FOLDING inline void take_turn() {
    for (std::size_t word = 0; word < kStreamBytes; word += 8) {
      crc0 = _mm_crc32_u64(crc0, word_at(next + word));
      crc1 = _mm_crc32_u64(crc1, word_at(next + bytes + word));
      crc2 = _mm_crc32_u64(crc2, word_at(next + 2 * bytes + word));
    }
    next += kStreamBytes;
    fetch_turn(ahead);
    ahead += kTurnBytes;
  }
};

template <std::size_t turns>
TERN_FOLDING std::uint32_t crc_of_block(const std::byte* block, const std::byte* ahead,
                                        std::uint32_t inverted) {
  constexpr std::size_t kStream = turns * kStreamBytes;  // bytes of a stream
  Streams<kStream> streams{block + turns * kFoldedBytes, ahead};
  constexpr FoldBy kByATurn = fold_by(8 * kFoldedBytes), kByALane = fold_by(8 * kLaneBytes);
  constexpr std::uint64_t kByThree = shift_by(3 * kStream), kByTwo = shift_by(2 * kStream),
                          kByOne = shift_by(kStream);
  const __m128i by_a_turn = constants(kByATurn);
  __m128i lane0 = _mm_xor_si128(lane_at(block), _mm_cvtsi32_si128(static_cast<int>(inverted)));
  __m128i lane1 = lane_at(block + kLaneBytes);
  __m128i lane2 = lane_at(block + 2 * kLaneBytes);
  __m128i lane3 = lane_at(block + 3 * kLaneBytes);
  streams.take_turn();
  for (std::size_t turn = 1; turn < turns; ++turn) {
    block += kFoldedBytes;
    lane0 = fold(lane0, by_a_turn, lane_at(block));
    lane1 = fold(lane1, by_a_turn, lane_at(block + kLaneBytes));
    lane2 = fold(lane2, by_a_turn, lane_at(block + 2 * kLaneBytes));
    lane3 = fold(lane3, by_a_turn, lane_at(block + 3 * kLaneBytes));
    streams.take_turn();
  }
  const __m128i by_a_lane = constants(kByALane);
  const __m128i lane =
      fold(fold(fold(lane0, by_a_lane, lane1), by_a_lane, lane2), by_a_lane, lane3);
  const std::uint64_t folded =
      _mm_crc32_u64(_mm_crc32_u64(0, static_cast<std::uint64_t>(_mm_cvtsi128_si64(lane))),
                    static_cast<std::uint64_t>(_mm_extract_epi64(lane, 1)));
  const __m128i moved =
      _mm_xor_si128(_mm_xor_si128(shift(folded, kByThree), shift(streams.crc0, kByTwo)),
                    shift(streams.crc1, kByOne));
  return static_cast<std::uint32_t>(
      _mm_crc32_u64(0, static_cast<std::uint64_t>(_mm_cvtsi128_si64(moved))) ^ streams.crc2);
}

// The streams of a block are too short for the processor to foresee, so each turn fetches the bytes
// that the same turn of the next block needs. What lies behind the last block stays where it is:
// another core may be writing there.
template <std::size_t turns>
TERN_FOLDING std::uint32_t crc_of_blocks(std::span<const std::byte>& left, std::uint32_t inverted) {
  constexpr std::size_t kBytes = turns * kTurnBytes;
  while (left.size() >= kBytes) {
    const bool last = left.size() < 2 * kBytes;
    inverted = crc_of_block<turns>(left.data(), left.data() + (last ? 0 : kBytes), inverted);
    left = left.subspan(kBytes);
  }
  return inverted;
}

#undef TERN_FOLDING

bool can_fold() noexcept {
  static const bool kCan = __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
  return kCan;
}

}  // namespace

std::uint32_t crc32c_folded(std::span<const std::byte>& left, std::uint32_t inverted) noexcept {
  if (left.size() < kLeastFoldedBytes || !can_fold()) return inverted;
  inverted = crc_of_blocks<kLongTurns>(left, inverted);
  return crc_of_blocks<kShortTurns>(left, inverted);
}

#else

std::uint32_t crc32c_folded(std::span<const std::byte>&, std::uint32_t inverted) noexcept {
  return inverted;
}

#endif

}  // namespace tern::wire
