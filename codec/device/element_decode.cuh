#pragma once

#include "codec/coding.h"
#include "codec/device/quantizer_formats.h"

// Blocks of the quantizers of element_encode.cuh, decoded or added one after another, one chunk for
// each block of threads. The scales of up to DecodeRoom::at_once blocks are read into shared memory
// first; then each element is read and written once for all of them. A payload may hold anything.
namespace tern::codec::device {

template <typename Format, bool kAdd>
class ElementDecoder {
 public:
  TERN_DEVICE ElementDecoder(const DecodeRoom& room, const DecodeChunk& chunk, simt::Arena& arena)
      : chunk_(chunk),
        room_(room),
        views_(arena.take<PayloadView>(chunk.block_count + 1)),
        scales_(arena.take<float>(std::size_t{room.at_once} * room.scale_count + 1)),
        bodies_(arena.take<Body>(room.at_once + 1)),
        verdicts_(arena.take<std::uint32_t>(simt::warps())) {}

  TERN_DEVICE void run() {
    const std::uint32_t count = chunk_.block_count;
    for (std::uint32_t i = simt::thread(); i < count; i += simt::threads()) {
      views_.store(i, simt::Global<const PayloadView>(chunk_.blocks).load(i));
    }
    simt::barrier();
    for (std::uint32_t first = 0; first < count; first += room_.at_once) {
      if (first != 0) simt::barrier();
      const std::uint32_t blocks = count - first < room_.at_once ? count - first : room_.at_once;
      for (std::uint32_t i = 0; i < blocks; ++i) {
        if (!read_scales(views_.load(first + i), i)) {
          return finish(DecodeStatus::wrong_payload_bytes);
        }
      }
      simt::barrier();
      for (std::uint32_t at = 4 * simt::thread(); at < chunk_.elements; at += kTiles * tile()) {
        decode_tiles(at, blocks);
      }
    }
    finish(any_bad() ? DecodeStatus::bad_scale : DecodeStatus::ok);
  }

 private:
  // What is asked for with each element, made once for each block.
  struct Body {
    const std::byte* codes;
    std::uint64_t reciprocal;  // of ScaleIndex
  };
  static_assert(sizeof(Body) == kBodyBytes);

  TERN_DEVICE void finish(DecodeStatus status) const {
    if (simt::thread() != 0) return;
    simt::Global<std::uint32_t>(chunk_.status).store(0, static_cast<std::uint32_t>(status));
  }

  TERN_DEVICE std::uint32_t scale_count(const PayloadView& view) const {
    if (!Format::kHasSide || chunk_.elements == 0) return 0;
    return view.scale_elements == 0 ? 1 : (chunk_.elements - 1) / view.scale_elements + 1;
  }

  // False, to all threads: the payload is not as long as its scales and codes.
  TERN_DEVICE bool read_scales(const PayloadView& view, std::uint32_t number) {
    const std::uint32_t count = scale_count(view);
    const std::uint32_t bytes = 4 * count + (chunk_.elements * Format::kBits + 7) / 8;
    if (view.payload_bytes != bytes || count > room_.scale_count) return false;
    bad_ = bad_ || view.scale_elements % 32 != 0;
    const simt::Global<const float> side(
        static_cast<const float*>(static_cast<const void*>(view.payload)));
    for (std::uint32_t i = simt::thread(); i < count; i += simt::threads()) {
      const float scale = side.load(i);
      bad_ = bad_ || !Format::is_scale(scale);
      scales_.store(number * room_.scale_count + i, scale);
    }
    if (simt::thread() == number % simt::threads()) {
      bodies_.store(number, {view.payload + std::size_t{4} * count,
                             ScaleIndex::reciprocal(view.scale_elements, count)});
    }
    return true;
  }

  TERN_DEVICE bool any_bad() const {
    const unsigned votes = simt::ballot(bad_);
    if (simt::lane() == 0) verdicts_.store(simt::warp(), votes);
    simt::barrier();
    std::uint32_t all = 0;
    for (unsigned warp = 0; warp < simt::warps(); ++warp) all |= verdicts_.load(warp);
    return all != 0;
  }

  // A thread has four elements of each tile, and some tiles at a time, whose loads are on their way
  // together.
  static constexpr unsigned kTiles = 4;
  static TERN_DEVICE std::uint32_t tile() { return 4 * simt::threads(); }

  TERN_DEVICE void decode_tiles(std::uint32_t begin, std::uint32_t blocks) {
    simt::Wide<float> sums[kTiles] = {};
    for (unsigned t = 0; kAdd && t < kTiles; ++t) sums[t] = load_sums(begin + t * tile());
    for (std::uint32_t i = 0; i < blocks; ++i) {
      const Body body = bodies_.load(i);
      FourCodes codes[kTiles] = {};
      for (unsigned t = 0; t < kTiles; ++t) {
        const std::uint32_t at = begin + t * tile();
        if (at < chunk_.elements) codes[t] = load_codes(body.codes, at);
      }
      for (unsigned t = 0; t < kTiles; ++t) {
        const std::uint32_t at = begin + t * tile();
        add_four(codes[t], scale_of(i, body, at), sums[t]);
      }
    }
    for (unsigned t = 0; t < kTiles; ++t) store_sums(begin + t * tile(), sums[t]);
  }

  // Of block `number` among those whose scales are there; any beyond the chunk's end.
  TERN_DEVICE float scale_of(std::uint32_t number, const Body& body, std::uint32_t at) const {
    if (!Format::kHasSide || at >= chunk_.elements) return 1.0f;
    const auto reciprocal = static_cast<std::uint32_t>(body.reciprocal);
    return scales_.load(number * room_.scale_count + ScaleIndex::of(at, reciprocal));
  }

  TERN_DEVICE simt::Wide<float> load_sums(std::uint32_t at) const {
    const simt::Global<float> out(chunk_.out);
    simt::Wide<float> sums{};
    if (at + 4 <= chunk_.elements) return out.load_wide(at);
    for (unsigned k = 0; k < 4 && at + k < chunk_.elements; ++k) sums.of[k] = out.load(at + k);
    return sums;
  }

  TERN_DEVICE void store_sums(std::uint32_t at, const simt::Wide<float>& sums) const {
    const simt::Global<float> out(chunk_.out);
    if (at + 4 <= chunk_.elements) return out.store_wide(at, sums);
    for (unsigned k = 0; k < 4 && at + k < chunk_.elements; ++k) out.store(at + k, sums.of[k]);
  }

  using FourCodes = typename Format::FourCodes;
  TERN_DEVICE void add_four(FourCodes codes, float scale, simt::Wide<float>& sums) {
    bad_ = bad_ || !Format::are_codes(codes);
    for (unsigned k = 0; k < 4; ++k) {
      constexpr std::uint32_t kMask = (1u << Format::kBits) - 1;
      const auto code = static_cast<std::uint32_t>(codes >> (Format::kBits * k)) & kMask;
      const float value = Format::value_of(code, scale);
      sums.of[k] = kAdd ? sums.of[k] + value : value;
    }
  }

  // Four codes: 2, 4 or 8 bytes, fewer at the end of the chunk. Beyond it they are 0, a code that
  // every format has.
  TERN_DEVICE FourCodes load_codes(const void* body, std::uint32_t at) const {
    constexpr std::uint32_t kBytes = Format::kBits / 2;
    if (at + 4 <= chunk_.elements) {
      return simt::Global<const FourCodes>(static_cast<const FourCodes*>(body)).load(at / 4);
    }
    const std::uint32_t bits = (chunk_.elements - at) * Format::kBits;
    const std::uint32_t bytes = (bits + 7) / 8;
    const simt::Global<const std::uint8_t> rest(static_cast<const std::uint8_t*>(body));
    std::uint64_t codes = 0;
    for (std::uint32_t i = 0; i < bytes; ++i) {
      codes |= std::uint64_t{rest.load(at / 4 * kBytes + i)} << (8 * i);
    }
    return static_cast<FourCodes>(codes & ((std::uint64_t{1} << bits) - 1));
  }

  const DecodeChunk& chunk_;
  const DecodeRoom& room_;
  simt::Shared<PayloadView> views_;
  simt::Shared<float> scales_;
  simt::Shared<Body> bodies_;
  simt::Shared<std::uint32_t> verdicts_;
  bool bad_ = false;
};

// The kernel.
template <typename Format, bool kAdd>
TERN_DEVICE void element_decode(const DecodeRoom& room, const DecodeChunk* chunks) {
  const DecodeChunk chunk = simt::Global<const DecodeChunk>(chunks).load(simt::block());
  simt::Arena arena;
  ElementDecoder<Format, kAdd>(room, chunk, arena).run();
}

}  // namespace tern::codec::device
