// 3LC for processors with AVX-512 and its byte permutations (VBMI, VBMI2), where mask registers do
// what the portable form does with vectors. Each function names its target, because a flag for the
// whole file could leave copies of shared inline functions that older processors cannot run.
#include "codec/kernels.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include <array>

#include "codec/kernels_highway.h"

#define TERN_AVX512 \
  __attribute__((   \
      target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,bmi,bmi2,lzcnt,popcnt")))
#define TERN_AVX512_INLINE TERN_AVX512 inline __attribute__((always_inline))

namespace tern::codec {
namespace {

constexpr std::size_t kLanes = 16;
// Lines that are added to are fetched one batch of blocks ahead, so that memory works while the
// next batch of columns is expanded. An output that is only written is not: its lines are written
// as a whole, and fetching them made decoding a quarter slower.
constexpr std::size_t kPrefetchSum = 2560;
constexpr std::size_t kVectorsPerRun = kRunElements / kLanes;

// The code byte for a position in a run of zeros, counted from 1: what is written if the run ends
// there. Every 14th is the code of a whole piece. Positions go to 64 + 13.
constexpr auto kCodeOfPosition = [] {
  std::array<std::uint8_t, 128> table{};
  for (std::uint32_t position = 1; position < table.size(); ++position) {
    const std::uint32_t rest = position % kLongestZeroRun;
    table[position] = rest == 0   ? 255
                      : rest == 1 ? kZeroColumn
                                  : static_cast<std::uint8_t>(241 + rest);
  }
  return table;
}();

// Indices that move bytes `distance` places up, for the prefix maximum.
constexpr auto kShiftUp = [] {
  std::array<std::array<std::uint8_t, 64>, 6> tables{};
  for (std::size_t step = 0; step < tables.size(); ++step) {
    for (std::size_t i = 0; i < 64; ++i) {
      tables[step][i] = static_cast<std::uint8_t>((i + 64 - (std::size_t{1} << step)) % 64);
    }
  }
  return tables;
}();

constexpr auto kOneTo64 = [] {
  std::array<std::uint8_t, 64> table{};
  for (std::size_t i = 0; i < 64; ++i) table[i] = static_cast<std::uint8_t>(i + 1);
  return table;
}();

TERN_AVX512_INLINE __m512i load_bytes(const std::uint8_t* bytes) noexcept {
  return _mm512_loadu_si512(bytes);
}

TERN_AVX512_INLINE __m512i byte_set(std::uint8_t value) noexcept {
  return _mm512_set1_epi8(static_cast<char>(value));
}

// The masks of four vectors as one of 64 bits, without leaving the mask registers.
TERN_AVX512_INLINE __mmask64 join_masks(const __mmask16 (&masks)[kVectorsPerRun]) noexcept {
  const __mmask32 low = _mm512_kunpackw(masks[1], masks[0]);
  const __mmask32 high = _mm512_kunpackw(masks[3], masks[2]);
  return _mm512_kunpackd(high, low);
}

// For each byte the one-based place of the last non-zero column at or before it; 0 if there is
// none.
TERN_AVX512_INLINE __m512i last_nonzero(std::uint64_t zeros, __m512i one_to_64) noexcept {
  __m512i last = _mm512_maskz_mov_epi8(~zeros, one_to_64);
#pragma GCC unroll 6
  for (unsigned step = 0; step < 6; ++step) {
    const __mmask64 has_source = ~std::uint64_t{0} << (1u << step);
    const __m512i up =
        _mm512_maskz_permutexvar_epi8(has_source, load_bytes(kShiftUp[step].data()), last);
    last = _mm512_max_epu8(last, up);
  }
  return last;
}

// 64 columns with a run of more than 14: gives every zero its position in its run, and from that
// its code; keeps the non-zeros, the ends of runs and every 14th zero.
TERN_AVX512_INLINE void write_long_runs(__m512i columns, std::uint64_t zeros, std::uint64_t ends,
                                        ZeroRunWriter& writer) noexcept {
  const __m512i one_to_64 = load_bytes(kOneTo64.data());
  const __m512i last = last_nonzero(zeros, one_to_64);
  const __mmask64 leading = _mm512_testn_epi8_mask(last, last);
  __m512i position = _mm512_sub_epi8(one_to_64, last);
  position = _mm512_mask_add_epi8(position, leading, position,
                                  byte_set(static_cast<std::uint8_t>(writer.pending)));
  const __m512i code = _mm512_permutex2var_epi8(load_bytes(kCodeOfPosition.data()), position,
                                                load_bytes(kCodeOfPosition.data() + 64));
  const std::uint64_t pieces = _mm512_mask_cmpeq_epi8_mask(zeros, code, byte_set(255));
  const std::uint64_t emit = ~zeros | pieces | ends;
  const __m512i bytes = _mm512_mask_mov_epi8(columns, zeros, code);
  _mm512_storeu_si512(writer.out, _mm512_maskz_compress_epi8(emit, bytes));
  writer.out += __builtin_popcountll(emit);
}

// Zero-run codes 64 columns. The starts of the runs and their ends, each squeezed together, pair
// up; their distances are the lengths, whose codes are spread out again to where the runs end. A
// run at the end of the columns has a start and no end, and stays pending.
TERN_AVX512_INLINE void write_zero_runs(__m512i columns, ZeroRunWriter& writer) noexcept {
  const std::uint64_t zeros = _mm512_cmpeq_epi8_mask(columns, byte_set(kZeroColumn));
  if (zeros == ~std::uint64_t{0}) {
    writer.append_zeros(kBlockColumns);
    return;
  }
  const bool continues = (zeros & 1) != 0;
  *writer.out = kCodeOfPosition[writer.pending];
  writer.out += !continues && writer.pending != 0 ? 1 : 0;

  const std::uint64_t starts = zeros & ~(zeros << 1);
  const std::uint64_t ends = zeros & ~(zeros >> 1) & ~(std::uint64_t{1} << 63);
  const auto trailing = static_cast<std::uint32_t>(_lzcnt_u64(~zeros));
  const __m512i one_to_64 = load_bytes(kOneTo64.data());
  const __m512i first = _mm512_maskz_compress_epi8(starts, one_to_64);
  const __m512i after = _mm512_maskz_compress_epi8(ends, _mm512_add_epi8(one_to_64, byte_set(1)));
  __m512i length = _mm512_sub_epi8(after, first);
  length = _mm512_mask_add_epi8(length, zeros & 1, length,
                                byte_set(static_cast<std::uint8_t>(writer.pending)));
  const auto runs = static_cast<std::uint32_t>(__builtin_popcountll(ends));
  const std::uint64_t too_long = _mm512_mask_cmpgt_epu8_mask(_bzhi_u64(~std::uint64_t{0}, runs),
                                                             length, byte_set(kLongestZeroRun));
  // Blocks of 64 columns never start beyond one byte out per column in, so 64 bytes have room.
  if (too_long != 0 || trailing >= kLongestZeroRun) {
    write_long_runs(columns, zeros, ends, writer);
  } else {
    const __m512i code = _mm512_maskz_permutexvar_epi8(~std::uint64_t{0}, length,
                                                       load_bytes(kCodeOfPosition.data()));
    const std::uint64_t emit = ~zeros | ends;
    const __m512i bytes = _mm512_mask_expand_epi8(columns, ends, code);
    _mm512_storeu_si512(writer.out, _mm512_maskz_compress_epi8(emit, bytes));
    writer.out += __builtin_popcountll(emit);
  }
  writer.pending = trailing % kLongestZeroRun;
}

template <bool kWithResidual>
TERN_AVX512 void quantize_blocks(const QuantizeBlocks& shared_request, ZeroRunWriter& writer,
                                 float* energy_lanes) noexcept {
  // A copy of its own, or every vector store would make the compiler load the fields again.
  const QuantizeBlocks request = shared_request;
  __m512 energy[kVectorsPerRun];
  for (std::size_t v = 0; v < kVectorsPerRun; ++v)
    energy[v] = _mm512_loadu_ps(energy_lanes + v * kLanes);
  const __m512 state_scale = _mm512_set1_ps(request.state_scale);
  const __m512i sign = _mm512_set1_epi32(static_cast<int>(0x80000000u));
  const __m512i magnitude_mask = _mm512_set1_epi32(0x7fffffff);
  ScaleCursor cursor(request.scales, request.group_runs, 0, request.delivered);
  ZeroRunWriter local = writer;
  const float* input_block = request.input;
  float* residual_block = request.residual;
  for (std::size_t block = 0; block < request.blocks; ++block) {
    __m512i columns = byte_set(kZeroColumn);
    const float* input = input_block;
    float* residual = residual_block;
#pragma GCC unroll 5
    for (std::size_t run = 0; run < kRunsPerBlock; ++run) {
      cursor.next_run();
      const __m512 threshold = _mm512_set1_ps(cursor.threshold());
      const __m512 delivered = _mm512_set1_ps(cursor.delivered());
      __mmask16 sent[kVectorsPerRun];
      __mmask16 negative[kVectorsPerRun];
#pragma GCC unroll 4
      for (std::size_t v = 0; v < kVectorsPerRun; ++v) {
        __m512 sum = _mm512_loadu_ps(input + v * kLanes);
        if constexpr (kWithResidual) {
          const __m512 kept = _mm512_loadu_ps(residual + v * kLanes);
          sum = _mm512_add_ps(sum, _mm512_mul_ps(kept, state_scale));
        }
        // |sum| > threshold and the sign are two cheaper questions than two comparisons.
        const __m512i bits = _mm512_castps_si512(sum);
        const __m512 magnitude = _mm512_castsi512_ps(_mm512_and_si512(bits, magnitude_mask));
        sent[v] = _mm512_cmp_ps_mask(magnitude, threshold, _CMP_GT_OQ);
        negative[v] = _mm512_movepi32_mask(bits);
        const __m512 decoded = _mm512_castsi512_ps(_mm512_ternarylogic_epi32(
            sign, bits, _mm512_castps_si512(delivered), 0xca));  // sign ? bits : delivered
        const __m512 left = _mm512_mask_sub_ps(sum, sent[v], sum, decoded);
        if constexpr (kWithResidual) _mm512_storeu_ps(residual + v * kLanes, left);
        energy[v] = _mm512_add_ps(energy[v], _mm512_mul_ps(left, left));
      }
      const __mmask64 any = join_masks(sent);
      const __mmask64 below = _kand_mask64(any, join_masks(negative));
      columns = _mm512_mask_add_epi8(columns, any, columns, byte_set(kDigitWeights[run]));
      columns = _mm512_mask_sub_epi8(columns, below, columns,
                                     byte_set(static_cast<std::uint8_t>(2 * kDigitWeights[run])));
      input += request.run_step;
      if constexpr (kWithResidual) residual += request.run_step;
    }
    input_block += request.block_step;
    if constexpr (kWithResidual) residual_block += request.block_step;
    if (local.enabled) {
      write_zero_runs(columns, local);
    } else {
      _mm512_storeu_si512(local.out, columns);
      local.out += kBlockColumns;
    }
  }
  for (std::size_t v = 0; v < kVectorsPerRun; ++v)
    _mm512_storeu_ps(energy_lanes + v * kLanes, energy[v]);
  writer = local;
}

void quantize(const QuantizeBlocks& request, ZeroRunWriter& writer, float* energy_lanes) noexcept {
  if (request.residual == nullptr) {
    quantize_blocks<false>(request, writer, energy_lanes);
  } else {
    quantize_blocks<true>(request, writer, energy_lanes);
  }
}

using Sum = UnpackBlocks::Sum;

template <Sum kSum>
TERN_AVX512 void unpack_blocks(const UnpackBlocks& shared_request) noexcept {
  const UnpackBlocks request = shared_request;
  ScaleCursor cursor(request.scales, request.group_runs, request.first_run, DType::f32);
  for (std::size_t block = 0; block < request.blocks; ++block) {
    __m512i columns = load_bytes(request.columns + block * kBlockColumns);
    if constexpr (kSum == Sum::in_place) {
      if (_mm512_cmpneq_epi8_mask(columns, byte_set(kZeroColumn)) == 0) {
        for (std::size_t run = 0; run < kRunsPerBlock; ++run) cursor.next_run();
        continue;
      }
    }
#pragma GCC unroll 5
    for (std::size_t run = 0; run < kRunsPerBlock; ++run) {
      cursor.next_run();
      const __m512i one = byte_set(kDigitWeights[run]);
      const __mmask64 above = _mm512_cmpge_epu8_mask(
          columns, byte_set(static_cast<std::uint8_t>(2 * kDigitWeights[run])));
      const __mmask64 at_least_one = _mm512_cmpge_epu8_mask(columns, one);
      columns = _mm512_mask_sub_epi8(columns, at_least_one, columns, one);
      columns = _mm512_mask_sub_epi8(columns, above, columns, one);
      const __mmask64 below = ~at_least_one;
      const __m512 scale = _mm512_set1_ps(cursor.scale());
      const __m512 negated = _mm512_set1_ps(-cursor.scale());
      const std::size_t begin = block * request.block_step + run * request.run_step;
      float* const run_out = request.out + begin;
#pragma GCC unroll 4
      for (std::size_t v = 0; v < kVectorsPerRun; ++v) {
        const auto is_above = static_cast<__mmask16>(above >> (v * kLanes));
        const auto is_below = static_cast<__mmask16>(below >> (v * kLanes));
        __m512 value = _mm512_setzero_ps();
        if constexpr (kSum == Sum::none) {
          value = _mm512_maskz_mov_ps(is_above, scale);
          value = _mm512_mask_mov_ps(value, is_below, negated);
        } else {
          const std::size_t ahead = begin + v * kLanes + kPrefetchSum;
          if constexpr (kSum == Sum::in_place) {
            __builtin_prefetch(request.out + ahead, 1);
          } else {
            __builtin_prefetch(request.to + ahead * sizeof(float), 0, 2);
          }
          value = _mm512_loadu_ps(request.to + (begin + v * kLanes) * sizeof(float));
          value = _mm512_mask_add_ps(value, is_above, value, scale);
          value = _mm512_mask_sub_ps(value, is_below, value, scale);
        }
        _mm512_storeu_ps(run_out + v * kLanes, value);
      }
    }
  }
}

void unpack(const UnpackBlocks& request) noexcept {
  switch (request.sum()) {
    case Sum::none:
      return unpack_blocks<Sum::none>(request);
    case Sum::in_place:
      return unpack_blocks<Sum::in_place>(request);
    case Sum::elsewhere:
      return unpack_blocks<Sum::elsewhere>(request);
  }
}

}  // namespace

const ThreelcKernels* threelc_avx512() noexcept {
  if (__builtin_cpu_supports("avx512vbmi") == 0 || __builtin_cpu_supports("avx512vbmi2") == 0) {
    return nullptr;
  }
  // What gains nothing from intrinsics stays in the portable form.
  const ThreelcKernels* const portable = threelc_highway(HWY_AVX3);
  if (portable == nullptr) return nullptr;
  static const ThreelcKernels kKernels = {portable->scan, quantize, portable->expand, unpack};
  return &kKernels;
}

}  // namespace tern::codec

#else

namespace tern::codec {

const ThreelcKernels* threelc_avx512() noexcept { return nullptr; }

}  // namespace tern::codec

#endif
