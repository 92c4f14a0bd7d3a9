// The decoder expands the zero-run stream into a small buffer of digit columns and unpacks from
// there, so that a foreign stream can never make it write more than the buffer and the output hold.
#include <algorithm>
#include <bit>
#include <cmath>

#include "codec/kernels.h"
#include "codec/threelc.h"
#include "codec/threelc_layout.h"

namespace tern::codec {
namespace {

constexpr std::size_t kBufferBlocks = 8;

struct Decoding {
  const ThreelcKernels& kernels;
  DigitLayout layout;
  std::span<float> out;
  const std::byte* scales;
  std::uint32_t scale_count;
  std::uint32_t scale_elements;
  ZeroRunReader reader;
  bool add;
  const std::byte* own;  // what the sum begins with, or null if `out` holds it
};

// Whether the elements of blocks that follow each other do too.
bool is_tiled(const DigitLayout& layout) noexcept { return layout.block_step == kBlockElements; }

// Copies `own` where no kernel reads it: tails, and all of the paper layout.
void begin_sum(const Decoding& decoding, std::size_t begin, std::size_t count) noexcept {
  if (decoding.own == nullptr || count == 0) return;
  std::memcpy(decoding.out.data() + begin, decoding.own + begin * sizeof(float),
              count * sizeof(float));
}

bool scales_are_valid(const Decoding& decoding) noexcept {
  for (std::uint32_t i = 0; i < decoding.scale_count; ++i) {
    std::uint32_t bits;
    std::memcpy(&bits, decoding.scales + std::size_t{4} * i, sizeof(bits));
    if (bits >= kInfinityBits) return false;
  }
  return true;
}

DecodeStatus read_columns(Decoding& decoding, std::uint8_t* columns, std::size_t count) noexcept {
  if (decoding.reader.enabled) {
    const std::size_t made = decoding.kernels.expand(decoding.reader, columns, count);
    return made == count ? DecodeStatus::ok : DecodeStatus::stream_too_short;
  }
  const auto rest = static_cast<std::size_t>(decoding.reader.end - decoding.reader.next);
  if (rest < count) return DecodeStatus::stream_too_short;
  std::uint8_t largest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    columns[i] = decoding.reader.next[i];
    largest = std::max(largest, columns[i]);
  }
  decoding.reader.next += count;
  return largest <= kLargestColumn ? DecodeStatus::ok : DecodeStatus::bad_digit;
}

std::size_t group_of(const Decoding& decoding, std::size_t index) noexcept {
  return decoding.scale_count == 1 ? 0 : index / decoding.scale_elements;
}

// Columns whose runs are shorter than 64, or straddle scale groups; see Piece in the encoder.
DecodeStatus decode_piece(Decoding& decoding, std::size_t base, std::size_t column_count,
                          std::size_t run_step) noexcept {
  std::uint8_t columns[kBlockColumns + kExpandSlack];
  const DecodeStatus status = read_columns(decoding, columns, column_count);
  if (status != DecodeStatus::ok) return status;
  for (std::size_t run = 0; run < kRunsPerBlock; ++run) {
    for (std::size_t column = 0; column < column_count; ++column) {
      const std::size_t i = base + run * run_step + column;
      if (i >= decoding.layout.elements) break;  // what is left are pad digits
      const int q = columns[column] / kDigitWeights[run] % 3 - 1;
      if (decoding.add && q == 0) continue;
      const float scale = load_f32(decoding.scales + 4 * group_of(decoding, i));
      const float value = q == 0 ? 0.0f : std::copysign(scale, static_cast<float>(q));
      decoding.out[i] = decoding.add ? decoding.out[i] + value : value;
    }
  }
  return DecodeStatus::ok;
}

DecodeStatus decode_blocks(Decoding& decoding) noexcept {
  alignas(64) std::uint8_t buffer[kBufferBlocks * kBlockColumns + kExpandSlack];
  const DigitLayout& layout = decoding.layout;
  for (std::size_t block = 0; block < layout.full_blocks; block += kBufferBlocks) {
    const std::size_t blocks = std::min(kBufferBlocks, layout.full_blocks - block);
    const DecodeStatus status = read_columns(decoding, buffer, blocks * kBlockColumns);
    if (status != DecodeStatus::ok) return status;
    const std::size_t begin = block * layout.block_step;
    UnpackBlocks request{};
    request.columns = buffer;
    request.out = decoding.out.data() + begin;
    request.blocks = blocks;
    request.block_step = layout.block_step;
    request.run_step = layout.run_step;
    request.scales = decoding.scales;
    request.group_runs = decoding.scale_count == 1 ? 0 : decoding.scale_elements / kRunElements;
    request.first_run = block * kRunsPerBlock;
    if (!decoding.add) {
      request.to = nullptr;
    } else if (decoding.own != nullptr && is_tiled(layout)) {
      request.to = decoding.own + begin * sizeof(float);
    } else {
      request.to = reinterpret_cast<const std::byte*>(request.out);
    }
    decoding.kernels.unpack(request);
  }
  return DecodeStatus::ok;
}

DecodeStatus decode_digits(Decoding& decoding, bool runs_have_one_scale) noexcept {
  const DigitLayout& layout = decoding.layout;
  const std::size_t in_tiles = is_tiled(layout) ? layout.tail_base : 0;
  begin_sum(decoding, in_tiles, layout.elements - in_tiles);
  if (runs_have_one_scale) {
    const DecodeStatus status = decode_blocks(decoding);
    if (status != DecodeStatus::ok) return status;
  } else {
    for (std::size_t block = 0; block < layout.full_blocks; ++block) {
      const DecodeStatus status =
          decode_piece(decoding, block * kBlockColumns, kBlockColumns, layout.run_step);
      if (status != DecodeStatus::ok) return status;
    }
  }
  for (std::size_t column = 0; column < layout.tail_columns; column += kBlockColumns) {
    const std::size_t columns = std::min(kBlockColumns, layout.tail_columns - column);
    const DecodeStatus status =
        decode_piece(decoding, layout.tail_base + column, columns, layout.tail_run_step);
    if (status != DecodeStatus::ok) return status;
  }
  const bool consumed = decoding.reader.next == decoding.reader.end && decoding.reader.pending == 0;
  return consumed ? DecodeStatus::ok : DecodeStatus::stream_too_long;
}

}  // namespace

DecodeStatus threelc_decode(const BlockView& block, std::span<float> out, bool add,
                            const std::byte* own) noexcept {
  const auto& [header, payload] = block;
  if ((header.flags & wire::kBlockAllZero) != 0) {
    if (!add) std::fill(out.begin(), out.end(), 0.0f);
    if (own != nullptr && !out.empty()) std::memcpy(out.data(), own, out.size_bytes());
    return DecodeStatus::ok;
  }
  const Layout layout =
      (header.flags & wire::kBlockPaperLayout) != 0 ? Layout::paper : Layout::tile;
  const std::uint32_t scale_count = wire::block_scale_count(header.elements, header.scale_elements);
  const auto* const begin = reinterpret_cast<const std::uint8_t*>(payload.data());
  Decoding decoding{threelc_kernels(),
                    digit_layout(layout, header.elements),
                    out,
                    payload.data(),
                    scale_count,
                    header.scale_elements,
                    {begin + std::size_t{4} * scale_count, begin + payload.size(), 0,
                     (header.flags & wire::kBlockZeroRun) != 0},
                    add,
                    own};
  if (!scales_are_valid(decoding)) return DecodeStatus::bad_scale;
  return decode_digits(decoding, layout == Layout::tile || scale_count == 1);
}

}  // namespace tern::codec
