#pragma once

#include <bit>

#include "codec/coding.h"
#include "codec/device/block_scan.h"
#include "codec/device/chunk_sums.h"
#include "codec/device/threelc.h"

// 3LC blocks of one chunk, decoded or added one after another, one chunk for each block of threads.
// The columns of up to kAtOnce blocks are expanded into shared memory first; then each element is
// read and written once for all of them. A payload may hold anything: no place that it gives is
// believed.
namespace tern::codec::device {

// Where the columns and scales of one block lie in shared memory.
struct ExpandedPlace {
  std::uint32_t columns;
  std::uint32_t scales;
};

// Makes columns of a payload.
class Expander {
 public:
  // Room for `blocks` blocks of a chunk, of at most `scale_count` scales each.
  struct Room {
    std::uint32_t elements;
    std::uint32_t scale_count;
    std::uint32_t blocks;
  };

  TERN_DEVICE Expander(const Room& room, simt::Arena& arena)
      : column_room_(rounded_up((room.elements + 4) / 5 + 1, kPiece)),
        scale_room_(room.scale_count + 1),
        columns_(arena.take<std::uint8_t>(std::size_t{column_room_} * room.blocks)),
        scales_(arena.take<float>(std::size_t{scale_room_} * room.blocks)),
        stream_(arena.take<std::uint8_t>(column_room_)),
        totals_(arena.take<std::uint32_t>(simt::warps())),
        verdicts_(arena.take<std::uint32_t>(simt::warps())) {}

  TERN_DEVICE std::uint32_t word_of(std::uint32_t number, std::uint32_t column) const {
    return columns_.load_word(number * column_room_ + column);
  }
  TERN_DEVICE std::uint32_t column_of(std::uint32_t number, std::uint32_t column) const {
    return columns_.load(number * column_room_ + column);
  }
  TERN_DEVICE float scale_of(std::uint32_t number, std::uint32_t group) const {
    return scales_.load(number * scale_room_ + group);
  }

  // Block `number`. The same answer to all threads. Ends with a barrier if that is ok.
  TERN_DEVICE DecodeStatus expand(const PayloadView& block, const ThreelcShape& shape,
                                  std::uint32_t number) const {
    const ExpandedPlace to{number * column_room_, number * scale_room_};
    if (shape.scale_count >= scale_room_) return DecodeStatus::bad_header;
    if ((block.flags & wire::kBlockAllZero) != 0) {
      fill_zero(shape, to);
      return DecodeStatus::ok;
    }
    const std::uint32_t scale_bytes = 4 * shape.scale_count;
    if (block.payload_bytes < scale_bytes || block.payload_bytes - scale_bytes > shape.columns) {
      return DecodeStatus::wrong_payload_bytes;
    }
    const std::uint32_t bytes = block.payload_bytes - scale_bytes;
    const bool zero_run = (block.flags & wire::kBlockZeroRun) != 0;
    const std::uint32_t bad =
        read_scales(block, shape, to) | (zero_run ? read_bytes(block, bytes, stream_, 0)
                                                  : read_bytes(block, bytes, columns_, to.columns));
    const std::uint32_t verdict = any_of(bad);
    if ((verdict & kBadScale) != 0) return DecodeStatus::bad_scale;
    std::uint32_t made = bytes;
    if (zero_run) {
      made = expand_runs(bytes, shape.columns, to.columns);
    } else if ((verdict & kBadDigit) != 0) {
      return DecodeStatus::bad_digit;
    }
    simt::barrier();
    if (made < shape.columns) return DecodeStatus::stream_too_short;
    return made > shape.columns ? DecodeStatus::stream_too_long : DecodeStatus::ok;
  }

 private:
  static constexpr std::uint32_t kPiece = 16;
  static constexpr std::uint32_t kBadScale = 1;
  static constexpr std::uint32_t kBadDigit = 2;

  TERN_DEVICE void fill_zero(const ThreelcShape& shape, const ExpandedPlace& to) const {
    for (std::uint32_t i = 4 * simt::thread(); i < shape.columns; i += 4 * simt::threads()) {
      columns_.store_word(to.columns + i, kZeroColumn * 0x01010101u);
    }
    for (std::uint32_t i = simt::thread(); i < shape.scale_count; i += simt::threads()) {
      scales_.store(to.scales + i, 0.0f);
    }
    simt::barrier();
  }

  static TERN_DEVICE simt::Global<const std::uint32_t> words_of(const PayloadView& block) {
    return simt::Global<const std::uint32_t>(
        static_cast<const std::uint32_t*>(static_cast<const void*>(block.payload)));
  }

  TERN_DEVICE std::uint32_t read_scales(const PayloadView& block, const ThreelcShape& shape,
                                        const ExpandedPlace& to) const {
    std::uint32_t bad = 0;
    for (std::uint32_t i = simt::thread(); i < shape.scale_count; i += simt::threads()) {
      const std::uint32_t bits = words_of(block).load(i);
      if (bits >= kInfinityBits) bad |= kBadScale;
      scales_.store(to.scales + i, std::bit_cast<float>(bits));
    }
    return bad;
  }

  // The last `bytes` of the payload, and zeros up to a whole piece.
  TERN_DEVICE std::uint32_t read_bytes(const PayloadView& block, std::uint32_t bytes,
                                       const simt::Shared<std::uint8_t>& to,
                                       std::uint32_t place) const {
    std::uint32_t bad = 0;
    const std::uint32_t before = block.payload_bytes - bytes;
    const std::uint32_t words = bytes / 4;
    // Several are on their way at a time.
    constexpr std::uint32_t kAtOnce = 2;
    for (std::uint32_t first = simt::thread(); first < words; first += kAtOnce * simt::threads()) {
      std::uint32_t loaded[kAtOnce] = {};
      for (std::uint32_t n = 0; n < kAtOnce; ++n) {
        const std::uint32_t i = first + n * simt::threads();
        if (i < words) loaded[n] = words_of(block).load(before / 4 + i);
      }
      for (std::uint32_t n = 0; n < kAtOnce; ++n) {
        const std::uint32_t i = first + n * simt::threads();
        if (i >= words) break;
        for (unsigned k = 0; k < 4; ++k) bad |= digit_verdict(loaded[n] >> (8 * k) & 0xffu);
        to.store_word(place + 4 * i, loaded[n]);
      }
    }
    const std::uint32_t padded = rounded_up(bytes + 1, kPiece);
    const std::uint32_t i = bytes / 4 * 4 + simt::thread();
    if (i < padded) {
      const simt::Global<const std::byte> rest(block.payload);
      std::uint32_t byte = kZeroColumn;
      if (i < bytes) byte = static_cast<std::uint32_t>(rest.load(before + i));
      bad |= digit_verdict(byte);
      to.store(place + i, static_cast<std::uint8_t>(byte));
    }
    return bad;
  }

  static TERN_DEVICE std::uint32_t digit_verdict(std::uint32_t byte) {
    return byte > kLargestColumn ? kBadDigit : 0;
  }

  // Of all threads' bits.
  TERN_DEVICE std::uint32_t any_of(std::uint32_t bits) const {
    const std::uint32_t scale = simt::ballot((bits & kBadScale) != 0);
    const std::uint32_t digit = simt::ballot((bits & kBadDigit) != 0);
    const std::uint32_t of_warp = (scale != 0 ? kBadScale : 0) | (digit != 0 ? kBadDigit : 0);
    if (simt::lane() == 0) verdicts_.store(simt::warp(), of_warp);
    simt::barrier();
    std::uint32_t all = 0;
    for (unsigned warp = 0; warp < simt::warps(); ++warp) all |= verdicts_.load(warp);
    return all;
  }

  static TERN_DEVICE std::uint32_t length_of(std::uint8_t byte) {
    return byte > kLargestColumn ? byte - 241u : 1u;
  }

  // Each thread has a piece of 16 bytes; a sum tells it where its columns begin. Returns how many
  // columns the whole stream stands for.
  TERN_DEVICE std::uint32_t expand_runs(std::uint32_t bytes, std::uint32_t columns,
                                        std::uint32_t place_of_first) const {
    std::uint32_t made = 0;
    for (std::uint32_t begin = 0; begin < bytes; begin += kPiece * simt::threads()) {
      const std::uint32_t first = begin + kPiece * simt::thread();
      simt::Wide<std::uint8_t> piece{};
      if (first < bytes) piece = stream_.load_wide(first);
      std::uint32_t length = 0;
      for (std::uint32_t k = 0; k < kPiece && first + k < bytes; ++k) {
        length += length_of(piece.of[k]);
      }
      const Scanned place = block_scan<Sum>(length, totals_);
      std::uint32_t at = made + place.before;
      for (std::uint32_t k = 0; k < kPiece && first + k < bytes; ++k) {
        const std::uint32_t end = at + length_of(piece.of[k]);
        const std::uint8_t column = piece.of[k] > kLargestColumn ? kZeroColumn : piece.of[k];
        for (; at < end && at < columns; ++at) columns_.store(place_of_first + at, column);
        at = end;
      }
      made += place.all;
    }
    return made;
  }

  std::uint32_t column_room_;
  std::uint32_t scale_room_;
  simt::Shared<std::uint8_t> columns_;
  simt::Shared<float> scales_;
  simt::Shared<std::uint8_t> stream_;
  simt::Shared<std::uint32_t> totals_;
  simt::Shared<std::uint32_t> verdicts_;
};

// kAdd: `out` holds numbers to which the blocks are added; an element whose digit is zero keeps its
// bits. Otherwise there is one block, and `out` becomes what it says.
template <bool kAdd>
class ThreelcDecoder {
 public:
  TERN_DEVICE ThreelcDecoder(const DecodeRoom& room, const DecodeChunk& chunk, simt::Arena& arena)
      : chunk_(chunk),
        room_(room),
        views_(arena.take<PayloadView>(chunk.block_count + 1)),
        expander_({chunk.elements, room.scale_count, room.at_once}, arena) {}

  TERN_DEVICE void run() const {
    const std::uint32_t count = chunk_.block_count;
    for (std::uint32_t i = simt::thread(); i < count; i += simt::threads()) {
      views_.store(i, simt::Global<const PayloadView>(chunk_.blocks).load(i));
    }
    simt::barrier();
    for (std::uint32_t first = 0; first < count; first += room_.at_once) {
      if (first != 0) simt::barrier();
      const std::uint32_t blocks = count - first < room_.at_once ? count - first : room_.at_once;
      for (std::uint32_t i = 0; i < blocks; ++i) {
        const PayloadView view = views_.load(first + i);
        const DecodeStatus status =
            expander_.expand(view, {chunk_.elements, view.scale_elements}, i);
        if (status != DecodeStatus::ok) return finish(status);
      }
      add_blocks(first, blocks);
      add_tail(first, blocks);
    }
    finish(DecodeStatus::ok);
  }

 private:
  TERN_DEVICE void finish(DecodeStatus status) const {
    if (simt::thread() != 0) return;
    simt::Global<std::uint32_t>(chunk_.status).store(0, static_cast<std::uint32_t>(status));
  }

  TERN_DEVICE ThreelcShape shape_of(std::uint32_t block) const {
    return {chunk_.elements, views_.load(block).scale_elements};
  }

  // What the digit of a column says, times the scale. A zero is not added: -0 would become +0.
  struct Digit {
    std::uint32_t column;
    unsigned run;
  };
  static TERN_DEVICE float with_digit(float before, const Digit& at, float scale) {
    const std::uint32_t digit = at.column / digit_weight(at.run) % 3;
    if (digit == 1) return before;
    const float value = digit == 2 ? scale : -scale;
    return kAdd ? before + value : value;
  }

  TERN_DEVICE void add_blocks(std::uint32_t first_block, std::uint32_t blocks) const {
    const std::uint32_t full = chunk_.elements / kBlockElements;
    for (std::uint32_t first = 0; first < full; first += simt::threads() / FourColumns::kThreads) {
      const FourColumns four(first);
      if (four.block < full) add_four(four, first_block, blocks);
    }
  }

  TERN_DEVICE void add_four(const FourColumns& four, std::uint32_t first_block,
                            std::uint32_t blocks) const {
    const simt::Global<float> out(chunk_.out);
    simt::Wide<float> sums[kRunsPerBlock] = {};
    for (unsigned run = 0; kAdd && run < kRunsPerBlock; ++run) {
      sums[run] = out.load_wide(four.element(run));
    }
    for (std::uint32_t i = 0; i < blocks; ++i) {
      const ThreelcShape shape = shape_of(first_block + i);
      const std::uint32_t word = expander_.word_of(i, four.column);
      RunGroup group(shape, four.element(0));
      for (unsigned run = 0; run < kRunsPerBlock; ++run, group.advance()) {
        const float scale = expander_.scale_of(i, group.get());
        for (unsigned k = 0; k < 4; ++k) {
          const std::uint32_t column = word >> (8 * k) & 0xffu;
          sums[run].of[k] = with_digit(sums[run].of[k], {column, run}, scale);
        }
      }
    }
    for (unsigned run = 0; run < kRunsPerBlock; ++run) {
      out.store_wide(four.element(run), sums[run]);
    }
  }

  // A thread for each of up to 64 columns.
  TERN_DEVICE void add_tail(std::uint32_t first_block, std::uint32_t blocks) const {
    const ThreelcShape any = shape_of(first_block);
    const std::uint32_t column = simt::thread();
    if (column >= any.tail_columns) return;
    const simt::Global<float> out(chunk_.out);
    for (unsigned run = 0; run < kRunsPerBlock; ++run) {
      const std::uint32_t at = any.tail_element(run, column);
      if (at >= any.elements) break;
      float sum = 0.0f;
      if (kAdd) sum = out.load(at);
      for (std::uint32_t i = 0; i < blocks; ++i) {
        const std::uint32_t byte = expander_.column_of(i, kBlockColumns * any.full_blocks + column);
        const float scale = expander_.scale_of(i, shape_of(first_block + i).group_of(at));
        sum = with_digit(sum, {byte, run}, scale);
      }
      out.store(at, sum);
    }
  }

  const DecodeChunk& chunk_;
  const DecodeRoom& room_;
  simt::Shared<PayloadView> views_;
  Expander expander_;
};

// The kernel.
template <bool kAdd>
TERN_DEVICE void threelc_decode(const DecodeRoom& room, const DecodeChunk* chunks) {
  const DecodeChunk chunk = simt::Global<const DecodeChunk>(chunks).load(simt::block());
  simt::Arena arena;
  ThreelcDecoder<kAdd>(room, chunk, arena).run();
}

}  // namespace tern::codec::device
