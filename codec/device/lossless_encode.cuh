#pragma once

#include "base/dtype.h"
#include "codec/device/block_scan.h"
#include "codec/device/chunk_sums.h"
#include "codec/device/huffman_code.h"
#include "wire/block.h"

// Elements of 16 bits, bit for bit: the lower bytes of all elements, then the higher ones,
// Huffman-coded in four streams (codec/lossless/split.cc, codec/entropy/huffman.cc). One chunk for
// each block of threads; the higher bytes and what becomes of them stay in shared memory.
namespace tern::codec::device {

struct LosslessChunk {
  const std::uint16_t* input;    // aligned to 16 bytes
  std::byte* block;              // a header, and after it room for as many bytes as the input has
  std::uint32_t* payload_bytes;  // 0: the block would not be shorter than the elements; send these
  std::uint64_t stream_step;
  std::uint32_t elements;
  DType dtype;  // f16 or bf16
};

class LosslessEncoder {
 public:
  TERN_DEVICE LosslessEncoder(const LosslessChunk& chunk, simt::Arena& arena)
      : chunk_(chunk),
        high_(arena.take<std::uint8_t>(rounded_up(chunk.elements + 1, kPiece))),
        coded_(arena.take<std::uint32_t>(room() / 4 + 2)),
        counts_(arena.take<std::uint32_t>(kByteValues)),
        present_(arena.take<std::uint32_t>(kByteValues)),
        totals_(arena.take<std::uint32_t>(simt::warps())),
        verdict_(arena.take<std::uint32_t>(1)),
        code_(counts_, arena) {}

  TERN_DEVICE void run() {
    if (chunk_.elements == 0) return finish(0);
    split();
    count();
    const std::uint32_t symbols = code_.build();
    std::uint32_t coded = 0;
    if (symbols == 1) {
      coded = room() < 2 ? 0 : 2;
      if (simt::thread() == 0 && coded != 0) put_byte(0, 1);
      if (simt::thread() == 0 && coded != 0) put_byte(1, high_.load(0));
    } else {
      const std::uint32_t header = may_fit(symbols) ? write_lengths(symbols) : 0;
      if (header != 0) coded = encode_streams(header);
    }
    simt::barrier();
    if (coded != 0) write_coded(coded);
    finish(coded);
  }

 private:
  static constexpr std::uint32_t kPiece = 16;
  static constexpr std::uint32_t kStreams = 4;
  static constexpr std::uint32_t kSizesBytes = 12;
  static constexpr std::uint32_t kMostListed = 84;

  // What the coded bytes may take: the block must be shorter than the elements.
  TERN_DEVICE std::uint32_t room() const { return chunk_.elements == 0 ? 0 : chunk_.elements - 1; }
  TERN_DEVICE std::byte* payload() const { return chunk_.block + wire::kBlockHeaderBytes; }
  TERN_DEVICE simt::Global<std::uint8_t> bytes() const {
    return simt::Global<std::uint8_t>(static_cast<std::uint8_t*>(static_cast<void*>(payload())));
  }

  // Turned left by one bit, an element has its exponent, or the most of it, in the higher byte.
  static TERN_DEVICE std::uint32_t turned(std::uint32_t element) {
    return (element << 1 | element >> 15) & 0xffffu;
  }

  TERN_DEVICE void split() const {
    const simt::Global<const std::uint16_t> input(chunk_.input);
    const simt::Global<std::uint64_t> eight(
        static_cast<std::uint64_t*>(static_cast<void*>(payload())));
    for (std::uint32_t at = 8 * simt::thread(); at < chunk_.elements; at += 8 * simt::threads()) {
      std::uint64_t low = 0;
      std::uint64_t high = 0;
      simt::Wide<std::uint16_t> elements{};
      const std::uint32_t rest = chunk_.elements - at;
      if (rest >= 8) {
        elements = input.load_wide(at);
      } else {
        for (std::uint32_t k = 0; k < rest; ++k) elements.of[k] = input.load(at + k);
      }
      for (unsigned k = 0; k < 8; ++k) {
        const std::uint32_t element = turned(elements.of[k]);
        low |= std::uint64_t{element & 0xffu} << (8 * k);
        high |= std::uint64_t{element >> 8} << (8 * k);
      }
      high_.store_word(at, static_cast<std::uint32_t>(high));
      high_.store_word(at + 4, static_cast<std::uint32_t>(high >> 32));
      if (rest >= 8) {
        eight.store(at / 8, low);
      } else {
        for (std::uint32_t k = 0; k < rest; ++k) {
          bytes().store(at + k, static_cast<std::uint8_t>(low >> (8 * k)));
        }
      }
    }
    for (std::uint32_t i = simt::thread(); i < kByteValues; i += simt::threads()) {
      counts_.store(i, 0);
      present_.store(i, 0);
    }
    for (std::uint32_t i = simt::thread(); i < room() / 4 + 2; i += simt::threads()) {
      coded_.store(i, 0);
    }
    simt::barrier();
  }

  // A sample of whole lines, and each symbol that it missed once. Ends with a barrier.
  TERN_DEVICE void count() const {
    constexpr std::uint32_t kLine = 64;
    constexpr std::uint32_t kSample = 1u << 14;
    const std::uint32_t elements = chunk_.elements;
    const std::uint32_t every = elements / kSample == 0 ? 1 : elements / kSample;
    for (std::uint32_t i = simt::thread(); i < elements; i += simt::threads()) {
      const std::uint32_t symbol = high_.load(i);
      present_.add(symbol, 1);
      if (i / kLine % every == 0) counts_.add(symbol, 1);
    }
    simt::barrier();
    for (std::uint32_t i = simt::thread(); i < kByteValues; i += simt::threads()) {
      const bool missed = present_.load(i) != 0;
      if (missed && counts_.load(i) == 0) counts_.store(i, 1);
    }
    simt::barrier();
  }

  // Whether coding is worth trying, in the processor's order of additions. The same to all threads.
  TERN_DEVICE bool may_fit(std::uint32_t symbols) const {
    if (simt::thread() == 0) {
      double counted = 0;
      double bits = 0;
      for (std::uint32_t symbol = 0; symbol < kByteValues; ++symbol) {
        const auto count = static_cast<double>(code_.count(symbol));
        counted += count;
        bits += count * static_cast<double>(code_.length(symbol));
      }
      const double streams = bits / counted * static_cast<double>(chunk_.elements) / 8;
      const bool fits = streams < static_cast<double>(room()) * 1.02;
      verdict_.store(0, fits && room() >= length_bytes(symbols) ? 1 : 0);
    }
    simt::barrier();
    return verdict_.load(0) != 0;
  }

  static TERN_DEVICE std::uint32_t length_bytes(std::uint32_t symbols) {
    return 1 + (symbols > kMostListed ? kByteValues / 2 : symbols + (symbols + 1) / 2);
  }

  // Nobody else puts bits in the same place, so that a sum is an or.
  TERN_DEVICE void put_byte(std::uint32_t i, std::uint32_t byte) const {
    coded_.add(i / 4, byte << (8 * (i % 4)));
  }

  // All lengths by half bytes, or a list of the symbols and theirs.
  TERN_DEVICE std::uint32_t write_lengths(std::uint32_t symbols) const {
    const bool dense = symbols > kMostListed;
    if (simt::thread() == 0) {
      put_byte(0, dense ? 0 : symbols);
      const std::uint32_t halves = 1 + (dense ? 0 : symbols);
      std::uint32_t listed = 0;
      for (std::uint32_t symbol = 0; symbol < kByteValues; ++symbol) {
        const std::uint32_t length = code_.length(symbol);
        if (!dense && length == 0) continue;
        if (!dense) put_byte(1 + listed, symbol);
        put_byte(halves + listed / 2, length << (listed % 2 * 4));
        ++listed;
      }
    }
    return length_bytes(symbols);
  }

  TERN_DEVICE std::uint32_t segment_begin(std::uint32_t stream) const {
    const std::uint32_t begin = stream * ((chunk_.elements + kStreams - 1) / kStreams);
    return begin < chunk_.elements ? begin : chunk_.elements;
  }

  // Sizes and streams behind the lengths. Returns all that was coded, or 0: it does not fit.
  TERN_DEVICE std::uint32_t encode_streams(std::uint32_t header) const {
    if (room() - header < kSizesBytes) return 0;
    std::uint32_t at = header + kSizesBytes;
    for (std::uint32_t stream = 0; stream < kStreams; ++stream) {
      const std::uint32_t bits =
          encode_stream(segment_begin(stream), segment_begin(stream + 1), at);
      const std::uint32_t bytes = (bits + 7) / 8;
      if (bytes > room() - at) return 0;
      at += bytes;
      if (stream + 1 == kStreams || simt::thread() != 0) continue;
      for (unsigned k = 0; k < 4; ++k) put_byte(header + 4 * stream + k, bytes >> (8 * k) & 0xffu);
    }
    return at;
  }

  // The codes of the symbols from `begin` to `end`, from byte `at` on. Returns how many bits.
  TERN_DEVICE std::uint32_t encode_stream(std::uint32_t begin, std::uint32_t end,
                                          std::uint32_t at) const {
    std::uint32_t done = 0;
    for (std::uint32_t first = begin; first < end; first += kPiece * simt::threads()) {
      const std::uint32_t own = first + kPiece * simt::thread();
      std::uint32_t bits = 0;
      for (std::uint32_t i = own; i < own + kPiece && i < end; ++i) {
        bits += code_.length(high_.load(i));
      }
      const Scanned place = block_scan<Sum>(bits, totals_);
      std::uint32_t bit = 8 * at + done + place.before;
      for (std::uint32_t i = own; i < own + kPiece && i < end; ++i) {
        const std::uint32_t symbol = high_.load(i);
        put_code(bit, symbol);
        bit += code_.length(symbol);
      }
      done += place.all;
    }
    return done;
  }

  // The first bit of a code is the highest of what is free of its byte.
  TERN_DEVICE void put_code(std::uint32_t bit, std::uint32_t symbol) const {
    const std::uint32_t length = code_.length(symbol);
    if (bit + length > 8 * room()) return;
    // At most 11 bits lie in three bytes.
    const std::uint32_t shifted = code_.code(symbol) << (24 - bit % 8 - length);
    for (unsigned k = 0; k < 3; ++k) {
      const std::uint32_t byte = shifted >> (16 - 8 * k) & 0xffu;
      if (byte != 0) put_byte(bit / 8 + k, byte);
    }
  }

  // Behind the lower bytes, whose number decides how words lie: those of the payload are put
  // together from two of the coded ones.
  TERN_DEVICE void write_coded(std::uint32_t coded) const {
    const std::uint32_t begin = chunk_.elements;
    const std::uint32_t end = begin + coded;
    const std::uint32_t first_word = (begin + 3) / 4;
    const simt::Global<std::uint32_t> words(
        static_cast<std::uint32_t*>(static_cast<void*>(payload())));
    for (std::uint32_t i = first_word + simt::thread(); i < end / 4; i += simt::threads()) {
      words.store(i, word_at(4 * i - begin));
    }
    for (std::uint32_t i = begin + simt::thread(); i < 4 * first_word && i < end;
         i += simt::threads()) {
      bytes().store(i, byte_at(i - begin));
    }
    const std::uint32_t last = end / 4 < first_word ? end : end / 4 * 4;
    for (std::uint32_t i = last + simt::thread(); i < end; i += simt::threads()) {
      bytes().store(i, byte_at(i - begin));
    }
  }

  TERN_DEVICE std::uint8_t byte_at(std::uint32_t i) const {
    return static_cast<std::uint8_t>(coded_.load(i / 4) >> (8 * (i % 4)));
  }
  TERN_DEVICE std::uint32_t word_at(std::uint32_t i) const {
    const std::uint32_t low = coded_.load(i / 4);
    if (i % 4 == 0) return low;
    const std::uint32_t high = coded_.load(i / 4 + 1);
    return low >> (8 * (i % 4)) | high << (32 - 8 * (i % 4));
  }

  TERN_DEVICE void finish(std::uint32_t coded) const {
    if (simt::thread() != 0) return;
    wire::BlockHeader made;
    std::uint32_t bytes = 0;
    if (coded != 0) {
      bytes = chunk_.elements + coded;
      made.codec = static_cast<std::uint8_t>(wire::CodecId::lossless);
      made.dtype = static_cast<std::uint8_t>(chunk_.dtype);
      made.elements = chunk_.elements;
      made.payload_bytes = bytes;
      made.stream_step = chunk_.stream_step;
    }
    simt::Global<std::uint32_t>(chunk_.payload_bytes).store(0, bytes);
    simt::Global<wire::BlockHeader>(
        static_cast<wire::BlockHeader*>(static_cast<void*>(chunk_.block)))
        .store(0, made);
  }

  const LosslessChunk& chunk_;
  simt::Shared<std::uint8_t> high_;
  simt::Shared<std::uint32_t> coded_;
  simt::Shared<std::uint32_t> counts_;
  simt::Shared<std::uint32_t> present_;
  simt::Shared<std::uint32_t> totals_;
  simt::Shared<std::uint32_t> verdict_;
  HuffmanCode code_;
};

// The kernel.
TERN_DEVICE void lossless_encode(const LosslessChunk* chunks) {
  const LosslessChunk chunk = simt::Global<const LosslessChunk>(chunks).load(simt::block());
  simt::Arena arena;
  LosslessEncoder(chunk, arena).run();
}

}  // namespace tern::codec::device
