// The 3LC kernels for every vector instruction set, compiled once per target by foreach_target.
//
// Quantizing goes column by column: the five runs of N columns are read together and their digits
// are added up in 32-bit lanes, so that nothing crosses lanes until the bytes are narrowed.
#include "codec/target/compiled.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/threelc_highway.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <array>

#include "codec/kernels.h"
#include "codec/kernels_highway.h"

HWY_BEFORE_NAMESPACE();
namespace tern::codec::HWY_NAMESPACE {

#if TERN_CODEC_HAS_KERNELS

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::CappedTag<float, 16>;
using IntTag = hn::RebindToSigned<FloatTag>;
using UnsignedTag = hn::RebindToUnsigned<FloatTag>;
using ByteTag = hn::CappedTag<std::uint8_t, 64>;
using SixteenBytes = hn::FixedTag<std::uint8_t, 16>;
using EightBytes = hn::FixedTag<std::uint8_t, 8>;
using Float = hn::Vec<FloatTag>;
using Int = hn::Vec<IntTag>;

constexpr FloatTag kFloats;
constexpr IntTag kInts;
constexpr UnsignedTag kUnsigneds;
constexpr ByteTag kBytes;
constexpr std::size_t kFloatLanes = hn::MaxLanes(FloatTag());
constexpr std::size_t kByteLanes = hn::MaxLanes(ByteTag());

// Scan -------------------------------------------------------------------------------------------

struct ScanState {
  static constexpr std::size_t kVectors = kScanLanes / kFloatLanes;
  Float energy[kVectors];
  hn::Vec<UnsignedTag> largest[kVectors];

  explicit HWY_INLINE ScanState(const float* energy_lanes) noexcept {
    for (std::size_t v = 0; v < kVectors; ++v) {
      energy[v] = hn::LoadU(kFloats, energy_lanes + v * kFloatLanes);
      largest[v] = hn::Zero(kUnsigneds);
    }
  }

  // `kScanLanes` elements.
  template <bool kWithResidual>
  HWY_INLINE void step(const float* input, const float* residual, Float state_scale) noexcept {
    const auto magnitude = hn::Set(kUnsigneds, 0x7fffffffu);
    for (std::size_t v = 0; v < kVectors; ++v) {
      const Float value = hn::LoadU(kFloats, input + v * kFloatLanes);
      Float sum = value;
      if constexpr (kWithResidual) {
        const Float kept = hn::LoadU(kFloats, residual + v * kFloatLanes);
        sum = hn::Add(value, hn::Mul(kept, state_scale));
      }
      largest[v] = hn::Max(largest[v], hn::And(hn::BitCast(kUnsigneds, sum), magnitude));
      energy[v] = hn::Add(energy[v], hn::Mul(value, value));
    }
  }
};

// Far enough ahead to hide memory. Into the second-level cache: there are fewer places in which the
// first one waits for memory, and lines from the second come in time.
constexpr std::size_t kPrefetchElements = 512;

template <bool kWithResidual>
std::uint32_t scan_elements(const Sums& sums, float* energy_lanes) noexcept {
  const float* const input = sums.input;
  const float* const residual = sums.state;
  const std::size_t count = sums.count;
  ScanState state(energy_lanes);
  const Float factor = hn::Set(kFloats, sums.scale);
  std::size_t i = 0;
  for (; i + kScanLanes <= count; i += kScanLanes) {
    for (std::size_t line = 0; line < kScanLanes; line += 16) {
      __builtin_prefetch(input + i + line + kPrefetchElements, 0, 2);
      if constexpr (kWithResidual)
        __builtin_prefetch(residual + i + line + kPrefetchElements, 0, 2);
    }
    state.step<kWithResidual>(input + i, kWithResidual ? residual + i : nullptr, factor);
  }
  if (i < count) {
    float last_input[kScanLanes] = {};
    float last_residual[kScanLanes] = {};
    std::copy_n(input + i, count - i, last_input);
    if constexpr (kWithResidual) std::copy_n(residual + i, count - i, last_residual);
    state.step<kWithResidual>(last_input, last_residual, factor);
  }
  auto largest = state.largest[0];
  for (std::size_t v = 0; v < ScanState::kVectors; ++v) {
    hn::StoreU(state.energy[v], kFloats, energy_lanes + v * kFloatLanes);
    largest = hn::Max(largest, state.largest[v]);
  }
  return hn::GetLane(hn::MaxOfLanes(kUnsigneds, largest));
}

std::uint32_t scan(const Sums& sums, float* energy_lanes) noexcept {
  return sums.state == nullptr ? scan_elements<false>(sums, energy_lanes)
                               : scan_elements<true>(sums, energy_lanes);
}

// Zero-run coding --------------------------------------------------------------------------------

// Bit i says that columns[i] is five zeros.
HWY_INLINE std::uint64_t zero_mask(const std::uint8_t* columns) noexcept {
  const auto zero = hn::Set(kBytes, kZeroColumn);
  std::uint8_t bits[8];
  for (std::size_t i = 0; i < kBlockColumns; i += kByteLanes) {
    hn::StoreMaskBits(kBytes, hn::Eq(hn::Load(kBytes, columns + i), zero), bits + i / 8);
  }
  std::uint64_t mask;
  std::memcpy(&mask, bits, sizeof(mask));
  return mask;
}

// Writes the columns whose bit in `emit` is set, in order. Stores whole groups of eight; what is
// too much is written over by the next group, and never lies beyond one byte out per column in.
HWY_INLINE std::uint8_t* compress_columns(const std::uint8_t* columns, std::uint64_t emit,
                                          std::uint8_t* out) noexcept {
  const EightBytes eight;
  for (std::size_t group = 0; group < kBlockColumns; group += 8) {
    const auto mask = static_cast<std::uint8_t>(emit >> group);
    const auto order = hn::LoadU(eight, kCompressOrder[mask].data());
    const auto bytes = hn::LoadU(eight, columns + group);
    hn::StoreU(hn::TableLookupBytes(bytes, order), eight, out);
    out += __builtin_popcount(mask);
  }
  return out;
}

// Appends 64 columns. `columns` is scratch afterwards: run codes are written over the zeros that
// they stand for. The leading run belongs to what is pending, the trailing one stays pending.
HWY_INLINE void write_zero_runs(std::uint8_t* columns, ZeroRunWriter& writer) noexcept {
  const std::uint64_t zeros = zero_mask(columns);
  if (zeros == ~std::uint64_t{0}) {
    writer.append_zeros(kBlockColumns);
    return;
  }
  const auto leading = static_cast<std::uint32_t>(__builtin_ctzll(~zeros));
  const auto trailing = static_cast<std::uint32_t>(__builtin_clzll(~zeros));
  if (leading != 0) writer.append_zeros(leading);
  writer.flush();
  std::uint64_t inner = zeros >> leading << leading;
  inner = inner << trailing >> trailing;
  const std::uint64_t starts = inner & ~(inner << 1);
  // A zero by itself is its own code.
  std::uint64_t emit = ~zeros | (starts & ~(inner >> 1));
  for (std::uint64_t runs = starts & (inner >> 1); runs != 0; runs &= runs - 1) {
    const auto start = static_cast<std::uint32_t>(__builtin_ctzll(runs));
    auto length = static_cast<std::uint32_t>(__builtin_ctzll(~(inner >> start)));
    std::uint32_t at = start;
    for (; length > kLongestZeroRun; length -= kLongestZeroRun) {
      columns[at] = ZeroRunWriter::code(kLongestZeroRun);
      emit |= std::uint64_t{1} << at++;
    }
    columns[at] = ZeroRunWriter::code(length);
    emit |= std::uint64_t{1} << at;
  }
  writer.out = compress_columns(columns, emit, writer.out);
  if (trailing != 0) writer.append_zeros(trailing);
}

// `columns` is scratch afterwards.
HWY_INLINE void write_columns(std::uint8_t* columns, ZeroRunWriter& writer) noexcept {
  if (writer.enabled) {
    write_zero_runs(columns, writer);
  } else {
    std::memcpy(writer.out, columns, kBlockColumns);
    writer.out += kBlockColumns;
  }
}

// Quantization -----------------------------------------------------------------------------------

struct RunScale {
  float threshold;
  float delivered;
};

// N columns: five digits each, the residual, and its energy in memory, because sixteen registers
// cannot hold 64 lanes.
template <bool kWithResidual>
HWY_INLINE Int quantize_columns(const float* input, float* residual, std::size_t run_step,
                                const RunScale* scales, Float state_scale,
                                float* energy_lanes) noexcept {
  const UnsignedTag kBits;
  const auto sign = hn::Set(kBits, 0x80000000u);
  Float energy = hn::Load(kFloats, energy_lanes);
  Int packed = hn::Set(kInts, kZeroColumn);
  for (std::size_t run = 0; run < kRunsPerBlock; ++run) {
    const std::size_t i = run * run_step;
    Float sum = hn::LoadU(kFloats, input + i);
    if constexpr (kWithResidual) {
      sum = hn::Add(sum, hn::Mul(hn::LoadU(kFloats, residual + i), state_scale));
    }
    // |sum| > threshold and the sign are cheaper than two comparisons.
    const auto sent =
        hn::VecFromMask(kFloats, hn::Gt(hn::Abs(sum), hn::Set(kFloats, scales[run].threshold)));
    const Float sum_sign = hn::And(sum, hn::BitCast(kFloats, sign));
    const Float signed_scale = hn::Or(hn::Set(kFloats, scales[run].delivered), sum_sign);
    const Float left = hn::Sub(sum, hn::And(sent, signed_scale));
    if constexpr (kWithResidual) hn::StoreU(left, kFloats, residual + i);
    energy = hn::Add(energy, hn::Mul(left, left));
    // The weight of the digit with the sign of the sum, or 0.
    const Int negative = hn::ShiftRight<31>(hn::BitCast(kInts, sum));
    const Int weight = hn::Set(kInts, kDigitWeights[run]);
    const Int signed_weight = hn::Sub(hn::Xor(weight, negative), negative);
    packed = hn::Add(packed, hn::And(signed_weight, hn::BitCast(kInts, sent)));
  }
  hn::Store(energy, kFloats, energy_lanes);
  return packed;
}

// With kTiles the distance between runs is a constant, and so are the addresses of a block's runs.
template <bool kWithResidual, bool kTiles>
void quantize_blocks(const QuantizeBlocks& shared_request, ZeroRunWriter& writer,
                     float* energy_lanes) noexcept {
  // A copy of its own, or every byte store would make the compiler load the fields again.
  const QuantizeBlocks request = shared_request;
  const hn::Rebind<std::uint8_t, IntTag> narrow;
  const Float state_scale = hn::Set(kFloats, request.state_scale);
  ScaleCursor cursor(request.scales, request.group_runs, 0, request.delivered);
  ZeroRunWriter local = writer;
  // The columns of a block are coded after those of the next are computed: by then they have left
  // the store buffer, and a branch that was guessed wrong costs little.
  HWY_ALIGN std::uint8_t buffers[2][kBlockColumns];
  for (std::size_t block = 0; block < request.blocks; ++block) {
    RunScale scales[kRunsPerBlock];
    for (RunScale& scale : scales) {
      cursor.next_run();
      scale = {cursor.threshold(), cursor.delivered()};
    }
    std::uint8_t* const columns = buffers[block % 2];
    for (std::size_t column = 0; column < kBlockColumns; column += kFloatLanes) {
      const std::size_t first = block * request.block_step + column;
      const Int packed = quantize_columns<kWithResidual>(
          request.input + first, kWithResidual ? request.residual + first : nullptr,
          kTiles ? kRunElements : request.run_step, scales, state_scale, energy_lanes + column);
      hn::StoreU(hn::DemoteTo(narrow, packed), narrow, columns + column);
    }
    if (block != 0) write_columns(buffers[(block - 1) % 2], local);
  }
  if (request.blocks != 0) write_columns(buffers[(request.blocks - 1) % 2], local);
  writer = local;
}

void quantize(const QuantizeBlocks& request, ZeroRunWriter& writer, float* energy_lanes) noexcept {
  const bool tiles = request.run_step == kRunElements;
  if (request.residual == nullptr) {
    tiles ? quantize_blocks<false, true>(request, writer, energy_lanes)
          : quantize_blocks<false, false>(request, writer, energy_lanes);
  } else {
    tiles ? quantize_blocks<true, true>(request, writer, energy_lanes)
          : quantize_blocks<true, false>(request, writer, energy_lanes);
  }
}

// Expansion --------------------------------------------------------------------------------------

// Bit i says that bytes[i] is a run code.
HWY_INLINE std::uint64_t code_mask(const std::uint8_t* bytes) noexcept {
  const auto first_code = hn::Set(kBytes, static_cast<std::uint8_t>(kLargestColumn + 1));
  std::uint8_t bits[8];
  for (std::size_t i = 0; i < 64; i += kByteLanes) {
    const auto value = hn::LoadU(kBytes, bytes + i);
    hn::StoreMaskBits(kBytes, hn::Eq(hn::Max(value, first_code), value), bits + i / 8);
  }
  std::uint64_t mask;
  std::memcpy(&mask, bits, sizeof(mask));
  return mask;
}

HWY_INLINE void copy_literals(const std::uint8_t* from, std::uint8_t* to,
                              std::size_t count) noexcept {
  const SixteenBytes sixteen;
  std::size_t done = 0;
  do {
    hn::StoreU(hn::LoadU(sixteen, from + done), sixteen, to + done);
    done += 16;
  } while (done < count);
}

// One window of 64 input bytes. Requires 80 readable bytes, because literals are copied by 16.
// Returns false once `count` columns are made.
HWY_INLINE bool expand_window(ZeroRunReader& reader, std::uint8_t* columns, std::size_t count,
                              std::size_t& made) noexcept {
  const SixteenBytes sixteen;
  const auto zeros = hn::Set(sixteen, kZeroColumn);
  std::size_t position = 0;
  for (std::uint64_t codes = code_mask(reader.next); codes != 0; codes &= codes - 1) {
    const auto code = static_cast<std::size_t>(__builtin_ctzll(codes));
    copy_literals(reader.next + position, columns + made, code - position);
    made += code - position;
    if (made >= count) {
      reader.next += code - (made - count);
      made = count;
      return false;
    }
    hn::StoreU(zeros, sixteen, columns + made);
    made += reader.next[code] - std::size_t{241};
    position = code + 1;
    if (made >= count) {
      reader.pending = static_cast<std::uint32_t>(made - count);
      reader.next += position;
      made = count;
      return false;
    }
  }
  if (position < 64) copy_literals(reader.next + position, columns + made, 64 - position);
  made += 64 - position;
  const std::size_t excess = made > count ? made - count : 0;
  reader.next += 64 - excess;
  made -= excess;
  return made < count;
}

std::size_t expand(ZeroRunReader& reader, std::uint8_t* columns, std::size_t count) noexcept {
  std::size_t made = std::min<std::size_t>(reader.pending, count);
  std::fill_n(columns, made, kZeroColumn);
  reader.pending -= static_cast<std::uint32_t>(made);
  ZeroRunReader local = reader;
  bool more = made < count;
  while (more && local.end - local.next >= 80) more = expand_window(local, columns, count, made);
  while (made < count) {
    if (local.pending != 0) {
      const std::size_t zeros = std::min<std::size_t>(local.pending, count - made);
      std::fill_n(columns + made, zeros, kZeroColumn);
      made += zeros;
      local.pending -= static_cast<std::uint32_t>(zeros);
    } else if (local.next == local.end) {
      break;
    } else if (*local.next > kLargestColumn) {
      local.pending = *local.next++ - 241u;
    } else {
      columns[made++] = *local.next++;
    }
  }
  reader = local;
  return made;
}

// Unpacking --------------------------------------------------------------------------------------

// Takes one base-3 digit off every column: the bytes 1, 0, -1 for digit 0, 1, 2, which is the
// negated quantized value.
template <typename Vector>
HWY_INLINE Vector take_digit(Vector& columns, std::uint8_t weight) noexcept {
  const auto one = hn::Set(kBytes, weight);
  const auto two = hn::Set(kBytes, static_cast<std::uint8_t>(2 * weight));
  const auto at_least_one = hn::VecFromMask(kBytes, hn::Eq(hn::Max(columns, one), columns));
  const auto at_least_two = hn::VecFromMask(kBytes, hn::Eq(hn::Max(columns, two), columns));
  columns = hn::Sub(columns, hn::Add(hn::And(at_least_one, one), hn::And(at_least_two, one)));
  return hn::Add(hn::Set(kBytes, std::uint8_t{1}), hn::Add(at_least_one, at_least_two));
}

// They may be unaligned.
HWY_INLINE Float load_floats(const std::byte* floats) noexcept {
  const hn::Repartition<std::uint8_t, FloatTag> bytes;
  return hn::BitCast(kFloats, hn::LoadU(bytes, reinterpret_cast<const std::uint8_t*>(floats)));
}

// What is added to is read before the output is written, and the writes keep the processor's own
// prefetch busy.
constexpr std::size_t kPrefetchSum = 1024;

using Sum = UnpackBlocks::Sum;

template <Sum kSum>
HWY_INLINE void unpack_block(const UnpackBlocks& request, std::size_t block,
                             ScaleCursor& cursor) noexcept {
  const std::uint8_t* const columns = request.columns + block * kBlockColumns;
  HWY_ALIGN std::int8_t negated[kRunsPerBlock][kBlockColumns];
  for (std::size_t i = 0; i < kBlockColumns; i += kByteLanes) {
    auto bytes = hn::LoadU(kBytes, columns + i);
    const hn::RebindToSigned<ByteTag> signed_bytes;
    for (std::size_t run = 0; run < kRunsPerBlock; ++run) {
      const auto digit = take_digit(bytes, kDigitWeights[run]);
      hn::Store(hn::BitCast(signed_bytes, digit), signed_bytes, negated[run] + i);
    }
  }
  const hn::Rebind<std::int8_t, IntTag> narrow;
  for (std::size_t run = 0; run < kRunsPerBlock; ++run) {
    cursor.next_run();
    // -M times a negated digit is M times the digit, and -0 for a zero digit: adding that changes
    // no accumulator, not even -0.
    constexpr bool kAdds = kSum != Sum::none;
    const Float factor = hn::Set(kFloats, kAdds ? -cursor.scale() : cursor.scale());
    const std::size_t begin = block * request.block_step + run * request.run_step;
    float* const run_out = request.out + begin;
    for (std::size_t column = 0; column < kBlockColumns; column += kFloatLanes) {
      const Int digit = hn::PromoteTo(kInts, hn::Load(narrow, negated[run] + column));
      if constexpr (kAdds) {
        const std::byte* const to = request.to + (begin + column) * sizeof(float);
        __builtin_prefetch(to + kPrefetchSum * sizeof(float), kSum == Sum::in_place ? 1 : 0);
        const Float value = hn::Mul(hn::ConvertTo(kFloats, digit), factor);
        hn::StoreU(hn::Add(load_floats(to), value), kFloats, run_out + column);
      } else {
        const Float value = hn::Mul(hn::ConvertTo(kFloats, hn::Neg(digit)), factor);
        hn::StoreU(value, kFloats, run_out + column);
      }
    }
  }
}

template <Sum kSum>
void unpack_blocks(const UnpackBlocks& shared_request) noexcept {
  const UnpackBlocks request = shared_request;
  ScaleCursor cursor(request.scales, request.group_runs, request.first_run, DType::f32);
  for (std::size_t block = 0; block < request.blocks; ++block) {
    unpack_block<kSum>(request, block, cursor);
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

const ThreelcKernels kKernels = {scan, quantize, expand, unpack};
inline const ThreelcKernels* threelc_table() noexcept { return &kKernels; }

#else

inline const ThreelcKernels* threelc_table() noexcept { return nullptr; }

#endif

}  // namespace tern::codec::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tern::codec {

TERN_CODEC_HIGHWAY_TABLE(ThreelcKernels, threelc_highway, threelc_table)

}  // namespace tern::codec
#endif
