#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "codec/entropy/huffman_tables.h"

// The loops over bytes of the entropy coders, one table of functions per target. Private to
// codec/entropy.
namespace tern::codec::entropy {

inline constexpr std::size_t kStreams = 4;

// A quarter of a block: its bits, the first of them the highest of the first byte, and its symbols.
struct Stream {
  const std::uint8_t* in;
  std::size_t in_bytes;
  std::uint8_t* out;
  std::size_t out_bytes;
};
using Streams = std::array<Stream, kStreams>;

// The symbols that are in a block, as the sweep for those that no sample saw goes on.
struct Presence {
  // Bit (symbol >> 4 & 7) of by_low[symbol >> 7][symbol & 15].
  alignas(16) std::array<std::array<std::uint8_t, 16>, 2> by_low{};

  bool has(std::uint8_t symbol) const noexcept {
    return (by_low[symbol >> 7][symbol & 15] >> (symbol >> 4 & 7) & 1) != 0;
  }
  void add(std::uint8_t symbol) noexcept {
    by_low[symbol >> 7][symbol & 15] =
        static_cast<std::uint8_t>(by_low[symbol >> 7][symbol & 15] | 1u << (symbol >> 4 & 7));
  }
};

struct EntropyKernels {
  // Writes the codes of all symbols and pads with zero bits to a whole byte. Returns the end of
  // what was written, or null: it would be past the end of `out`.
  std::uint8_t* (*encode_stream)(std::span<const std::uint8_t> in, const EncodeTable& table,
                                 std::span<std::uint8_t> out) noexcept;
  // Requires: all of in lies before `in_end`, up to where it may be read.
  bool (*decode_streams)(const Streams& streams, const std::uint8_t* in_end,
                         const DecodeTable& table) noexcept;
  // Adds the symbols that `presence` lacks to it, and each once or more to the histogram.
  void (*add_unseen)(const std::uint8_t* in, std::size_t count, Presence& presence,
                     Histogram& histogram) noexcept;
  // Bit i % 64 of masks[i / 64] says that in[i] is `value`, for `words` words.
  void (*equal_masks)(const std::uint8_t* in, std::size_t words, std::uint8_t value,
                      std::uint64_t* masks) noexcept;
};

extern const EntropyKernels kScalarEntropy;
// `target` is one bit of hwy::SupportedTargets(); null if this build has no kernels for it.
const EntropyKernels* entropy_highway(std::int64_t target) noexcept;

// Of the target that is active now.
const EntropyKernels& entropy_kernels() noexcept;

// Bits that are not written yet: the last `count` ones of `bits`, fewer than eight.
struct PendingBits {
  std::uint64_t bits = 0;
  std::uint64_t count = 0;
};

// One symbol after another behind the pending bits, then the zero bits that pad the last byte. For
// the reference, and for the last few symbols of the others. Returns as encode_stream does.
std::uint8_t* encode_rest(std::span<const std::uint8_t> in, const EncodeTable& table,
                          PendingBits pending, std::span<std::uint8_t> out) noexcept;

// One symbol after another from `bit` on, then the check that the stream ends as encoders end it.
// For the reference, and for the last few symbols of the others. No requirement but the spans.
bool decode_rest(const Stream& stream, std::size_t bit, std::size_t done,
                 const DecodeTable& table) noexcept;

}  // namespace tern::codec::entropy
