#pragma once

#include <bit>

#include "codec/coding.h"
#include "codec/device/block_scan.h"
#include "codec/device/chunk_sums.h"
#include "codec/device/scale_index.h"
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

// Makes columns of payloads.
class Expander {
 public:
  // Room for `blocks` blocks of a chunk, of at most `scale_count` scales each.
  struct Room {
    std::uint32_t elements;
    std::uint32_t scale_count;
    std::uint32_t blocks;
  };

  TERN_DEVICE Expander(const Room& room, simt::Arena& arena)
      : column_room_(rounded_up((room.elements + 4) / 5 + 1, kPadding)),
        scale_room_(room.scale_count + 1),
        columns_(arena.take<std::uint8_t>(std::size_t{column_room_} * room.blocks)),
        scales_(arena.take<float>(std::size_t{scale_room_} * room.blocks)),
        reciprocals_(arena.take<std::uint32_t>(room.blocks)),
        totals_(arena.take<std::uint32_t>(simt::warps())),
        verdicts_(arena.take<std::uint32_t>(simt::warps())) {}

  TERN_DEVICE std::uint32_t word_of(std::uint32_t number, std::uint32_t column) const {
    return columns_.load_word(number * column_room_ + column);
  }
  TERN_DEVICE std::uint32_t column_of(std::uint32_t number, std::uint32_t column) const {
    return columns_.load(number * column_room_ + column);
  }
  // Of ScaleIndex.
  TERN_DEVICE std::uint32_t reciprocal_of(std::uint32_t number) const {
    return reciprocals_.load(number);
  }
  TERN_DEVICE float scale_of(std::uint32_t number, std::uint32_t group) const {
    return scales_.load(number * scale_room_ + group);
  }

  // Block `number`. Blocks without zero runs need no barrier, so that the loads of several are on
  // their way together; verdict() says how all of them went. False, to all threads: no block behind
  // this one matters.
  TERN_DEVICE bool expand(const PayloadView& block, const ThreelcShape& shape,
                          std::uint32_t number) {
    const ExpandedPlace to{number * column_room_, number * scale_room_};
    if (shape.scale_count >= scale_room_) return note(number, DecodeStatus::bad_header);
    if (simt::thread() == number % simt::threads()) {
      reciprocals_.store(number, ScaleIndex::reciprocal(shape.scale_elements, shape.scale_count));
    }
    if ((block.flags & wire::kBlockAllZero) != 0) {
      fill_zero(shape, to);
      return true;
    }
    const std::uint32_t scale_bytes = 4 * shape.scale_count;
    if (block.payload_bytes < scale_bytes || block.payload_bytes - scale_bytes > shape.columns) {
      return note(number, DecodeStatus::wrong_payload_bytes);
    }
    const std::uint32_t bytes = block.payload_bytes - scale_bytes;
    const bool zero_run = (block.flags & wire::kBlockZeroRun) != 0;
    if (read_scales(block, shape, to)) note(number, DecodeStatus::bad_scale);
    std::uint32_t made = bytes;
    if (zero_run) {
      made = expand_runs(block, {bytes, shape.columns, to.columns});
    } else if (read_bytes(block, bytes, to.columns)) {
      note(number, DecodeStatus::bad_digit);
    }
    if (made < shape.columns) return note(number, DecodeStatus::stream_too_short);
    return made == shape.columns || note(number, DecodeStatus::stream_too_long);
  }

  // Of all blocks so far: what the first one that is bad has. The same to all threads. Ends with a
  // barrier, after which columns and scales can be read.
  TERN_DEVICE DecodeStatus verdict() const {
    const std::uint32_t of_warp = simt::largest_of(simt::kAllLanes, worst_);
    if (simt::lane() == 0) verdicts_.store(simt::warp(), of_warp);
    simt::barrier();
    std::uint32_t worst = 0;
    for (unsigned warp = 0; warp < simt::warps(); ++warp) {
      worst = Largest::of(worst, verdicts_.load(warp));
    }
    return worst == 0 ? DecodeStatus::ok : static_cast<DecodeStatus>(kStatuses - worst % kStatuses);
  }

 private:
  static constexpr std::uint32_t kPadding = 16;
  static constexpr std::uint32_t kPiece = 4;
  static constexpr std::uint32_t kStatuses = 256;

  // The largest note is of the first block; of one block, it is the status that the processor finds
  // first, which has the smallest number. Always false.
  TERN_DEVICE bool note(std::uint32_t number, DecodeStatus status) {
    const std::uint32_t own = kStatuses - static_cast<std::uint32_t>(status);
    worst_ = Largest::of(worst_, (0xffffffu - number) * kStatuses + own);
    return false;
  }

  TERN_DEVICE void fill_zero(const ThreelcShape& shape, const ExpandedPlace& to) const {
    for (std::uint32_t i = 4 * simt::thread(); i < shape.columns; i += 4 * simt::threads()) {
      columns_.store_word(to.columns + i, kZeroColumn * 0x01010101u);
    }
    for (std::uint32_t i = simt::thread(); i < shape.scale_count; i += simt::threads()) {
      scales_.store(to.scales + i, 0.0f);
    }
  }

  static TERN_DEVICE simt::Global<const std::uint32_t> words_of(const PayloadView& block) {
    return simt::Global<const std::uint32_t>(
        static_cast<const std::uint32_t*>(static_cast<const void*>(block.payload)));
  }

  // Whether one is bad.
  TERN_DEVICE bool read_scales(const PayloadView& block, const ThreelcShape& shape,
                               const ExpandedPlace& to) const {
    bool bad = false;
    for (std::uint32_t i = simt::thread(); i < shape.scale_count; i += simt::threads()) {
      const std::uint32_t bits = words_of(block).load(i);
      bad = bad || bits >= kInfinityBits;
      scales_.store(to.scales + i, std::bit_cast<float>(bits));
    }
    return bad;
  }

  // The last `bytes` of the payload, and zeros behind them. Whether one is no column.
  TERN_DEVICE bool read_bytes(const PayloadView& block, std::uint32_t bytes,
                              std::uint32_t place) const {
    bool bad = false;
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
        bad = bad || any_beyond(loaded[n]);
        columns_.store_word(place + 4 * i, loaded[n]);
      }
    }
    const std::uint32_t padded = rounded_up(bytes + 1, kPadding);
    const std::uint32_t i = bytes / 4 * 4 + simt::thread();
    if (i < padded) {
      const simt::Global<const std::byte> rest(block.payload);
      std::uint32_t byte = kZeroColumn;
      if (i < bytes) byte = static_cast<std::uint32_t>(rest.load(before + i));
      bad = bad || byte > kLargestColumn;
      columns_.store(place + i, static_cast<std::uint8_t>(byte));
    }
    return bad;
  }

  // Whether one of four bytes is above the largest column: with what is added, those carry.
  static TERN_DEVICE bool any_beyond(std::uint32_t word) {
    constexpr std::uint32_t kUpToCarry = (0x7fu - (kLargestColumn & 0x7fu)) * 0x01010101u;
    return (((word & 0x7f7f7f7fu) + kUpToCarry) & word & 0x80808080u) != 0;
  }

  static TERN_DEVICE std::uint32_t length_of(std::uint32_t byte) {
    return byte > kLargestColumn ? byte - 241u : 1u;
  }

  struct Runs {
    std::uint32_t bytes;    // the last ones of the payload
    std::uint32_t columns;  // that they should make
    std::uint32_t place;    // of the first
  };

  // Four bytes of the stream, zeros behind its end.
  TERN_DEVICE std::uint32_t piece_at(const PayloadView& block, const Runs& runs,
                                     std::uint32_t first) const {
    const std::uint32_t at = block.payload_bytes - runs.bytes + first;
    if (first + kPiece <= runs.bytes) return words_of(block).load(at / 4);
    const simt::Global<const std::byte> rest(block.payload);
    std::uint32_t piece = 0;
    for (std::uint32_t k = 0; k < kPiece && first + k < runs.bytes; ++k) {
      piece |= static_cast<std::uint32_t>(rest.load(at + k)) << (8 * k);
    }
    return piece;
  }

  // Each thread has a piece of four bytes; a sum tells it where its columns begin. Returns how many
  // columns the whole stream stands for.
  TERN_DEVICE std::uint32_t expand_runs(const PayloadView& block, const Runs& runs) const {
    std::uint32_t made = 0;
    for (std::uint32_t begin = 0; begin < runs.bytes; begin += kPiece * simt::threads()) {
      const std::uint32_t first = begin + kPiece * simt::thread();
      const std::uint32_t piece = piece_at(block, runs, first);
      std::uint32_t length = 0;
      for (std::uint32_t k = 0; k < kPiece && first + k < runs.bytes; ++k) {
        length += length_of(piece >> (8 * k) & 0xffu);
      }
      const Scanned place = block_scan<Sum>(length, totals_);
      std::uint32_t at = made + place.before;
      for (std::uint32_t k = 0; k < kPiece && first + k < runs.bytes; ++k) {
        const std::uint32_t byte = piece >> (8 * k) & 0xffu;
        const std::uint32_t end = at + length_of(byte);
        const auto column = static_cast<std::uint8_t>(byte > kLargestColumn ? kZeroColumn : byte);
        for (; at < end && at < runs.columns; ++at) columns_.store(runs.place + at, column);
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
  simt::Shared<std::uint32_t> reciprocals_;
  simt::Shared<std::uint32_t> totals_;
  simt::Shared<std::uint32_t> verdicts_;
  std::uint32_t worst_ = 0;
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

  TERN_DEVICE void run() {
    const std::uint32_t count = chunk_.block_count;
    for (std::uint32_t i = simt::thread(); i < count; i += simt::threads()) {
      views_.store(i, simt::Global<const PayloadView>(chunk_.blocks).load(i));
    }
    simt::barrier();
    for (std::uint32_t first = 0; first < count; first += room_.at_once) {
      if (first != 0) simt::barrier();
      const std::uint32_t blocks = count - first < room_.at_once ? count - first : room_.at_once;
      bool fine = true;
      for (std::uint32_t i = 0; fine && i < blocks; ++i) {
        const PayloadView view = views_.load(first + i);
        fine = expander_.expand(view, {chunk_.elements, view.scale_elements}, i);
      }
      const DecodeStatus status = expander_.verdict();
      if (status != DecodeStatus::ok) return finish(status);
      add_blocks(blocks);
      add_tail(blocks);
    }
    finish(DecodeStatus::ok);
  }

 private:
  TERN_DEVICE void finish(DecodeStatus status) const {
    if (simt::thread() != 0) return;
    simt::Global<std::uint32_t>(chunk_.status).store(0, static_cast<std::uint32_t>(status));
  }

  // The digits of a column, the first one first. What is left of it is a fraction of 2^32, of which
  // a product by 3 takes the highest digit off.
  class Digits {
   public:
    explicit TERN_DEVICE Digits(std::uint32_t column) : left_(column * kEach) {}

    // What the next digit says, times the scale. A zero is not added: -0 would become +0.
    TERN_DEVICE float next(float before, float scale) {
      const bool up = left_ >= kTwoThirds;
      const bool zero = !up && left_ >= kThird;
      left_ *= 3;
      if (zero) return before;
      const float value = up ? scale : -scale;
      return kAdd ? before + value : value;
    }

   private:
    static constexpr std::uint32_t kEach = 0xffffffffu / 243 + 1;
    static constexpr std::uint32_t kThird = 0xffffffffu / 3 + 1;
    static constexpr std::uint32_t kTwoThirds = 0xffffffffu / 3 * 2 + 1;

    std::uint32_t left_;
  };

  TERN_DEVICE void add_blocks(std::uint32_t blocks) const {
    const std::uint32_t full = chunk_.elements / kBlockElements;
    for (std::uint32_t first = 0; first < full; first += simt::threads() / FourColumns::kThreads) {
      const FourColumns four(first);
      if (four.block < full) add_four(four, blocks);
    }
  }

  TERN_DEVICE void add_four(const FourColumns& four, std::uint32_t blocks) const {
    const simt::Global<float> out(chunk_.out);
    simt::Wide<float> sums[kRunsPerBlock] = {};
    for (unsigned run = 0; kAdd && run < kRunsPerBlock; ++run) {
      sums[run] = out.load_wide(four.element(run));
    }
    for (std::uint32_t i = 0; i < blocks; ++i) {
      const std::uint32_t word = expander_.word_of(i, four.column);
      const std::uint32_t reciprocal = expander_.reciprocal_of(i);
      float scales[kRunsPerBlock];
      for (unsigned run = 0; run < kRunsPerBlock; ++run) {
        scales[run] = expander_.scale_of(i, ScaleIndex::of(four.element(run), reciprocal));
      }
      for (unsigned k = 0; k < 4; ++k) {
        Digits digits(word >> (8 * k) & 0xffu);
        for (unsigned run = 0; run < kRunsPerBlock; ++run) {
          sums[run].of[k] = digits.next(sums[run].of[k], scales[run]);
        }
      }
    }
    for (unsigned run = 0; run < kRunsPerBlock; ++run) {
      out.store_wide(four.element(run), sums[run]);
    }
  }

  // A thread for each of up to 64 columns.
  TERN_DEVICE void add_tail(std::uint32_t blocks) const {
    const ThreelcShape any(chunk_.elements, 0);
    const std::uint32_t column = simt::thread();
    if (column >= any.tail_columns) return;
    const simt::Global<float> out(chunk_.out);
    float sums[kRunsPerBlock] = {};
    for (unsigned run = 0; kAdd && run < kRunsPerBlock; ++run) {
      const std::uint32_t at = any.tail_element(run, column);
      if (at < any.elements) sums[run] = out.load(at);
    }
    for (std::uint32_t i = 0; i < blocks; ++i) {
      const std::uint32_t reciprocal = expander_.reciprocal_of(i);
      Digits digits(expander_.column_of(i, kBlockColumns * any.full_blocks + column));
      for (unsigned run = 0; run < kRunsPerBlock; ++run) {
        const std::uint32_t at = any.tail_element(run, column);
        if (at >= any.elements) break;
        const float scale = expander_.scale_of(i, ScaleIndex::of(at, reciprocal));
        sums[run] = digits.next(sums[run], scale);
      }
    }
    for (unsigned run = 0; run < kRunsPerBlock; ++run) {
      const std::uint32_t at = any.tail_element(run, column);
      if (at < any.elements) out.store(at, sums[run]);
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
