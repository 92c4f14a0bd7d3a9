// 3LC for processors with AVX-512 and its byte permutations (VBMI, VBMI2), where mask registers do what
// the portable form does with vectors. Each function names its target, because a flag for the whole file
// could leave copies of shared inline functions that older processors cannot run.
#include "codec/kernels.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include <array>

#include "codec/kernels_highway.h"

#define TERN_AVX512 \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,bmi,bmi2,lzcnt,popcnt")))
#define TERN_AVX512_INLINE TERN_AVX512 inline __attribute__((always_inline))

namespace tern::codec {
namespace {

constexpr std::size_t kLanes = 16;
constexpr std::size_t kVectorsPerRun = kRunElements / kLanes;

// The code byte for a position in a run of zeros, counted from 1: what is written if the run ends there.
// Every 14th is the code of a whole piece. Positions go to 64 + 13.
constexpr auto kCodeOfPosition = [] {
  std::array<std::uint8_t, 128> table{};
  for (std::uint32_t position = 1; position < table.size(); ++position) {
    const std::uint32_t rest = position % kLongestZeroRun;
    table[position] = rest == 0 ? 255 : rest == 1 ? kZeroColumn : static_cast<std::uint8_t>(241 + rest);
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

// For each byte the one-based place of the last non-zero column at or before it; 0 if there is none.
TERN_AVX512_INLINE __m512i last_nonzero(std::uint64_t zeros, __m512i one_to_64) noexcept {
  __m512i last = _mm512_maskz_mov_epi8(~zeros, one_to_64);
#pragma GCC unroll 6
  for (unsigned step = 0; step < 6; ++step) {
    const __mmask64 has_source = ~std::uint64_t{0} << (1u << step);
    const __m512i up = _mm512_maskz_permutexvar_epi8(has_source, load_bytes(kShiftUp[step].data()), last);
    last = _mm512_max_epu8(last, up);
  }
  return last;
}

// Zero-run codes 64 columns: gives every zero its position in its run, and from that its code; keeps the
// non-zeros, the ends of runs and every 14th zero.
TERN_AVX512_INLINE void write_zero_runs(__m512i columns, ZeroRunWriter& writer) noexcept {
  const std::uint64_t zeros = _mm512_cmpeq_epi8_mask(columns, byte_set(kZeroColumn));
  if (zeros == ~std::uint64_t{0}) {
    writer.append_zeros(kBlockColumns);
    return;
  }
  const bool starts_with_zero = (zeros & 1) != 0;
  *writer.out = kCodeOfPosition[writer.pending];
  writer.out += !starts_with_zero && writer.pending != 0 ? 1 : 0;

  const __m512i one_to_64 = load_bytes(kOneTo64.data());
  const __m512i last = last_nonzero(zeros, one_to_64);
  const __mmask64 leading = _mm512_testn_epi8_mask(last, last);
  __m512i position = _mm512_sub_epi8(one_to_64, last);
  position = _mm512_mask_add_epi8(position, leading, position,
                                  byte_set(static_cast<std::uint8_t>(writer.pending)));
  const __m512i code = _mm512_permutex2var_epi8(load_bytes(kCodeOfPosition.data()), position,
                                                load_bytes(kCodeOfPosition.data() + 64));
  const std::uint64_t pieces = _mm512_mask_cmpeq_epi8_mask(zeros, code, byte_set(255));
  const std::uint64_t ends = zeros & ~(zeros >> 1) & ~(std::uint64_t{1} << 63);
  const std::uint64_t emit = ~zeros | pieces | ends;
  const __m512i bytes = _mm512_mask_mov_epi8(columns, zeros, code);
  // A block of 64 columns never starts beyond one byte out per column in, so 64 bytes have room.
  _mm512_storeu_si512(writer.out, _mm512_maskz_compress_epi8(emit, bytes));
  writer.out += __builtin_popcountll(emit);
  writer.pending = static_cast<std::uint32_t>(_lzcnt_u64(~zeros)) % kLongestZeroRun;
}

template <bool kWithResidual>
TERN_AVX512 void quantize_blocks(const QuantizeBlocks& request, ZeroRunWriter& writer,
                                 float* energy_lanes) noexcept {
  __m512 energy[kVectorsPerRun];
  for (std::size_t v = 0; v < kVectorsPerRun; ++v) energy[v] = _mm512_loadu_ps(energy_lanes + v * kLanes);
  const __m512 state_scale = _mm512_set1_ps(request.state_scale);
  ScaleCursor cursor(request.scales, request.group_runs, 0, request.delivered);
  ZeroRunWriter local = writer;
  for (std::size_t block = 0; block < request.blocks; ++block) {
    __m512i columns = byte_set(kZeroColumn);
#pragma GCC unroll 5
    for (std::size_t run = 0; run < kRunsPerBlock; ++run) {
      cursor.next_run();
      const std::size_t base = block * request.block_step + run * request.run_step;
      const __m512 threshold = _mm512_set1_ps(cursor.threshold());
      const __m512 negated = _mm512_set1_ps(-cursor.threshold());
      const __m512 delivered = _mm512_set1_ps(cursor.delivered());
      std::uint64_t above = 0;
      std::uint64_t below = 0;
#pragma GCC unroll 4
      for (std::size_t v = 0; v < kVectorsPerRun; ++v) {
        const std::size_t i = base + v * kLanes;
        __m512 sum = _mm512_loadu_ps(request.input + i);
        if constexpr (kWithResidual) {
          const __m512 kept = _mm512_loadu_ps(request.residual + i);
          sum = _mm512_add_ps(sum, _mm512_mul_ps(kept, state_scale));
        }
        const __mmask16 is_above = _mm512_cmp_ps_mask(sum, threshold, _CMP_GT_OQ);
        const __mmask16 is_below = _mm512_cmp_ps_mask(sum, negated, _CMP_LT_OQ);
        __m512 left = _mm512_mask_sub_ps(sum, is_above, sum, delivered);
        left = _mm512_mask_add_ps(left, is_below, left, delivered);
        if constexpr (kWithResidual) _mm512_storeu_ps(request.residual + i, left);
        energy[v] = _mm512_add_ps(energy[v], _mm512_mul_ps(left, left));
        above |= static_cast<std::uint64_t>(is_above) << (v * kLanes);
        below |= static_cast<std::uint64_t>(is_below) << (v * kLanes);
      }
      const __m512i weight = byte_set(kDigitWeights[run]);
      columns = _mm512_mask_add_epi8(columns, above, columns, weight);
      columns = _mm512_mask_sub_epi8(columns, below, columns, weight);
    }
    if (local.enabled) {
      write_zero_runs(columns, local);
    } else {
      _mm512_storeu_si512(local.out, columns);
      local.out += kBlockColumns;
    }
  }
  for (std::size_t v = 0; v < kVectorsPerRun; ++v) _mm512_storeu_ps(energy_lanes + v * kLanes, energy[v]);
  writer = local;
}

void quantize(const QuantizeBlocks& request, ZeroRunWriter& writer, float* energy_lanes) noexcept {
  if (request.residual == nullptr) {
    quantize_blocks<false>(request, writer, energy_lanes);
  } else {
    quantize_blocks<true>(request, writer, energy_lanes);
  }
}

template <bool kAdd>
TERN_AVX512 void unpack_blocks(const UnpackBlocks& request) noexcept {
  ScaleCursor cursor(request.scales, request.group_runs, request.first_run, DType::f32);
  for (std::size_t block = 0; block < request.blocks; ++block) {
    __m512i columns = load_bytes(request.columns + block * kBlockColumns);
    float* const out = request.out + block * request.block_step;
    if constexpr (kAdd) {
      if (_mm512_cmpneq_epi8_mask(columns, byte_set(kZeroColumn)) == 0) {
        for (std::size_t run = 0; run < kRunsPerBlock; ++run) cursor.next_run();
        continue;
      }
    }
#pragma GCC unroll 5
    for (std::size_t run = 0; run < kRunsPerBlock; ++run) {
      cursor.next_run();
      const __m512i one = byte_set(kDigitWeights[run]);
      const __mmask64 above =
          _mm512_cmpge_epu8_mask(columns, byte_set(static_cast<std::uint8_t>(2 * kDigitWeights[run])));
      const __mmask64 at_least_one = _mm512_cmpge_epu8_mask(columns, one);
      columns = _mm512_mask_sub_epi8(columns, at_least_one, columns, one);
      columns = _mm512_mask_sub_epi8(columns, above, columns, one);
      const __mmask64 below = ~at_least_one;
      const __m512 scale = _mm512_set1_ps(cursor.scale());
      const __m512 negated = _mm512_set1_ps(-cursor.scale());
      float* const run_out = out + run * request.run_step;
#pragma GCC unroll 4
      for (std::size_t v = 0; v < kVectorsPerRun; ++v) {
        const auto is_above = static_cast<__mmask16>(above >> (v * kLanes));
        const auto is_below = static_cast<__mmask16>(below >> (v * kLanes));
        __m512 value = _mm512_setzero_ps();
        if constexpr (kAdd) {
          value = _mm512_loadu_ps(run_out + v * kLanes);
          value = _mm512_mask_add_ps(value, is_above, value, scale);
          value = _mm512_mask_sub_ps(value, is_below, value, scale);
        } else {
          value = _mm512_maskz_mov_ps(is_above, scale);
          value = _mm512_mask_mov_ps(value, is_below, negated);
        }
        _mm512_storeu_ps(run_out + v * kLanes, value);
      }
    }
  }
}

void unpack(const UnpackBlocks& request) noexcept {
  if (request.add) {
    unpack_blocks<true>(request);
  } else {
    unpack_blocks<false>(request);
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
  static const ThreelcKernels kernels = {portable->scan, quantize, portable->expand, unpack};
  return &kernels;
}

}  // namespace tern::codec

#else

namespace tern::codec {

const ThreelcKernels* threelc_avx512() noexcept { return nullptr; }

}  // namespace tern::codec

#endif
