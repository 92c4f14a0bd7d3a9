#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "base/dtype.h"
#include "base/half.h"

// What every instruction set implements. Private to codec/.
//
// Words: a digit is a quantized element (0, 1 or 2, for -M, 0, +M); a column is the digit byte that
// packs five digits; a run is 64 consecutive elements; a digit block is 64 columns, that is five
// runs.
namespace tern::codec {

inline constexpr std::size_t kRunElements = 64;
inline constexpr std::size_t kRunsPerBlock = 5;
inline constexpr std::size_t kBlockColumns = 64;
inline constexpr std::size_t kBlockElements = kRunElements * kRunsPerBlock;
inline constexpr std::uint8_t kDigitWeights[kRunsPerBlock] = {81, 27, 9, 3, 1};
inline constexpr std::uint8_t kZeroColumn = 121;     // five zeros
inline constexpr std::uint8_t kLargestColumn = 242;  // five times +M
inline constexpr std::uint32_t kLongestZeroRun = 14;
inline constexpr std::uint32_t kInfinityBits = 0x7f800000u;

// Energies are summed in this many f32 lanes on every target, in the same order in each lane, so
// that they come out bit-identical.
inline constexpr std::size_t kScanLanes = 32;
inline constexpr std::size_t kResidualLanes = kBlockColumns;

inline float load_f32(const std::byte* bytes) noexcept {
  float value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

inline std::uint32_t magnitude_bits(float value) noexcept {
  return std::bit_cast<std::uint32_t>(value) & 0x7fffffffu;
}

// The greedy zero-run coder as a state: a piece of 14 leaves at once, what is shorter is pending.
// Never writes more bytes than it was given columns, so `out` needs no more room than these.
struct ZeroRunWriter {
  std::uint8_t* out = nullptr;
  std::uint32_t pending = 0;  // < 14
  bool enabled = true;

  static std::uint8_t code(std::uint32_t run) noexcept {
    return run == 1 ? kZeroColumn : static_cast<std::uint8_t>(241 + run);
  }
  void flush() noexcept {
    if (pending != 0) *out++ = code(pending);
    pending = 0;
  }
  void append_zeros(std::uint32_t count) noexcept {
    pending += count;
    while (pending >= kLongestZeroRun) {
      *out++ = code(kLongestZeroRun);
      pending -= kLongestZeroRun;
    }
  }
  void append(const std::uint8_t* columns, std::size_t count) noexcept {
    for (std::size_t i = 0; i < count; ++i) {
      if (enabled && columns[i] == kZeroColumn) {
        append_zeros(1);
      } else {
        flush();
        *out++ = columns[i];
      }
    }
  }
};

struct ZeroRunReader {
  const std::uint8_t* next = nullptr;
  const std::uint8_t* end = nullptr;
  std::uint32_t pending = 0;  // zeros of a run that the output buffer had no room for
  bool enabled = true;
};

// expand() may write this far past the columns it was asked for.
inline constexpr std::size_t kExpandSlack = 64;

// Walks the scales of a payload run by run.
class ScaleCursor {
 public:
  // `group_runs` == 0 means that one scale serves all.
  ScaleCursor(const std::byte* scales, std::size_t group_runs, std::size_t first_run,
              DType delivered) noexcept
      : next_(scales), group_runs_(group_runs), delivered_(delivered) {
    if (group_runs_ == 0) {
      load();
      left_ = std::numeric_limits<std::size_t>::max();
    } else {
      next_ += 4 * (first_run / group_runs_);
      const std::size_t used = first_run % group_runs_;
      if (used != 0) {
        load();
        left_ -= used;
      }
    }
  }
  void next_run() noexcept {
    if (left_ == 0) load();
    --left_;
  }
  float scale() const noexcept { return scale_; }
  float threshold() const noexcept { return threshold_; }  // quantize to +-1 strictly beyond this
  float delivered() const noexcept { return delivered_scale_; }

 private:
  void load() noexcept {
    scale_ = load_f32(next_);
    next_ += 4;
    threshold_ = scale_ * 0.5f;
    delivered_scale_ = round_to_dtype(delivered_, scale_);
    left_ = group_runs_;
  }

  const std::byte* next_;
  std::size_t group_runs_;
  std::size_t left_ = 0;
  DType delivered_;
  float scale_ = 0.0f;
  float threshold_ = 0.0f;
  float delivered_scale_ = 0.0f;
};

// Run k of digit block b begins at element b * block_step + k * run_step.
struct QuantizeBlocks {
  const float* input;
  float* residual;  // null under memory none
  float state_scale;
  std::size_t blocks;
  std::size_t block_step;
  std::size_t run_step;
  const std::byte* scales;
  std::size_t group_runs;
  DType delivered;
};

struct UnpackBlocks {
  const std::uint8_t* columns;
  float* out;
  std::size_t blocks;
  std::size_t block_step;
  std::size_t run_step;
  const std::byte* scales;
  std::size_t group_runs;
  std::size_t first_run;
  // What the elements are added to. Null: nothing. `out`: the sum is in place. Else memory that is
  // laid out as `out`, and is only read.
  const std::byte* to;

  enum class Sum : std::uint8_t { none, in_place, elsewhere };
  Sum sum() const noexcept {
    if (to == nullptr) return Sum::none;
    return to == reinterpret_cast<const std::byte*>(out) ? Sum::in_place : Sum::elsewhere;
  }
};

// input + scale * state, or the input alone if the state is null.
struct Sums {
  const float* input;
  const float* state;
  float scale;
  std::size_t count;
};

struct ThreelcKernels {
  // Largest magnitude bits of the sums, and the energy of the input.
  std::uint32_t (*scan)(const Sums& sums, float* energy_lanes) noexcept;
  // Quantizes, updates the residual, packs and zero-run codes.
  void (*quantize)(const QuantizeBlocks& request, ZeroRunWriter& writer,
                   float* energy_lanes) noexcept;
  // Returns how many columns it could produce, at most `count`.
  std::size_t (*expand)(ZeroRunReader& reader, std::uint8_t* columns, std::size_t count) noexcept;
  // Requires: every column <= 242.
  void (*unpack)(const UnpackBlocks& request) noexcept;
};

// All byte pointers may be unaligned.
struct ConvertKernels {
  void (*f16_to_f32)(const std::byte* source, std::size_t count, float* out) noexcept;
  void (*f32_to_f16)(const float* source, std::size_t count, std::byte* out) noexcept;
  void (*bf16_to_f32)(const std::byte* source, std::size_t count, float* out) noexcept;
  void (*f32_to_bf16)(const float* source, std::size_t count, std::byte* out) noexcept;
  void (*add_f32)(float* accumulator, const std::byte* source, std::size_t count) noexcept;
  void (*add_bf16)(float* accumulator, const std::byte* source, std::size_t count) noexcept;
  void (*add_f16)(float* accumulator, const std::byte* source, std::size_t count) noexcept;
  // out[i] = a[i] + b[i]
  void (*sum_f32)(const std::byte* a, const std::byte* b, std::size_t count, float* out) noexcept;
};

const ThreelcKernels& threelc_kernels() noexcept;
const ConvertKernels& convert_kernels() noexcept;

extern const ThreelcKernels kThreelcScalar;
extern const ConvertKernels kConvertScalar;
// Null if this processor lacks AVX-512 or its VBMI2.
const ThreelcKernels* threelc_avx512() noexcept;

}  // namespace tern::codec
