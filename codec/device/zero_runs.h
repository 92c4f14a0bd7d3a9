#pragma once

#include <cstdint>

#include "codec/device/block_scan.h"
#include "codec/device/simt.h"
#include "codec/kernels.h"

// Zero-run coding by all threads of a block. Each has a piece of 16 columns. A scan for the largest
// tells it where the run of zeros begins that its piece goes on with, so that it knows how many of
// these are pending. A scan for the sum tells it where its bytes go.
namespace tern::codec::device {

class ZeroRuns {
 public:
  static constexpr std::uint32_t kPiece = 16;

  // `columns` and `coded` have room for `count` rounded up to whole pieces; `totals` has a number
  // for each warp.
  TERN_DEVICE ZeroRuns(const simt::Shared<std::uint8_t>& columns, std::uint32_t count,
                       const simt::Shared<std::uint32_t>& totals)
      : columns_(columns), count_(count), totals_(totals) {}

  // Returns how many bytes it wrote. Ends with a barrier.
  TERN_DEVICE std::uint32_t encode(const simt::Shared<std::uint8_t>& coded) {
    std::uint32_t after = 0;  // the place after the last column that is not zero
    std::uint32_t made = 0;
    for (std::uint32_t begin = 0; begin < count_; begin += kPiece * simt::threads()) {
      const std::uint32_t first = begin + kPiece * simt::thread();
      simt::Wide<std::uint8_t> piece{};
      if (first < count_) piece = columns_.load_wide(first);
      const Scanned last = block_scan<Largest>(after_last(piece, first), totals_);
      const std::uint32_t run_begin = last.before < after ? after : last.before;
      const std::uint32_t bytes = write(piece, {first, run_begin, 0}, nullptr);
      const Scanned place = block_scan<Sum>(bytes, totals_);
      write(piece, {first, run_begin, made + place.before}, &coded);
      after = last.all < after ? after : last.all;
      made += place.all;
    }
    simt::barrier();
    return made;
  }

 private:
  struct Start {
    std::uint32_t first;      // column of the piece
    std::uint32_t run_begin;  // of the zeros before it
    std::uint32_t place;      // of the first byte
  };

  TERN_DEVICE std::uint32_t after_last(const simt::Wide<std::uint8_t>& piece,
                                       std::uint32_t first) const {
    std::uint32_t after = 0;
    for (std::uint32_t k = 0; k < kPiece && first + k < count_; ++k) {
      if (piece.of[k] != kZeroColumn) after = first + k + 1;
    }
    return after;
  }

  static TERN_DEVICE std::uint8_t code(std::uint32_t run) {
    return run == 1 ? kZeroColumn : static_cast<std::uint8_t>(241 + run);
  }

  // As ZeroRunWriter of the processor: what is shorter than the longest run is pending. Counts
  // alone without an output.
  TERN_DEVICE std::uint32_t write(const simt::Wide<std::uint8_t>& piece, const Start& start,
                                  const simt::Shared<std::uint8_t>* coded) const {
    if (start.first >= count_) return 0;
    std::uint32_t pending = (start.first - start.run_begin) % kLongestZeroRun;
    std::uint32_t place = start.place;
    const auto put = [&](std::uint8_t byte) {
      if (coded != nullptr) coded->store(place, byte);
      ++place;
    };
    for (std::uint32_t k = 0; k < kPiece && start.first + k < count_; ++k) {
      const bool zero = piece.of[k] == kZeroColumn;
      pending += zero ? 1 : 0;
      if (pending != 0 && (!zero || pending == kLongestZeroRun)) {
        put(code(pending));
        pending = 0;
      }
      if (!zero) put(piece.of[k]);
    }
    if (pending != 0 && start.first + kPiece >= count_) put(code(pending));
    return place - start.place;
  }

  simt::Shared<std::uint8_t> columns_;
  std::uint32_t count_;
  simt::Shared<std::uint32_t> totals_;
};

}  // namespace tern::codec::device
