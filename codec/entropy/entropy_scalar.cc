// The reference: one symbol at a time.
#include <algorithm>

#include "codec/entropy/entropy_kernels.h"
#include "codec/target/highway_table.h"

namespace tern::codec::entropy {
namespace {

std::uint8_t* encode_stream(std::span<const std::uint8_t> in, const EncodeTable& table,
                            std::span<std::uint8_t> out) noexcept {
  return encode_rest(in, table, {}, out);
}

bool decode_streams(const Streams& streams, const std::uint8_t*,
                    const DecodeTable& table) noexcept {
  return std::all_of(streams.begin(), streams.end(),
                     [&](const Stream& stream) { return decode_rest(stream, 0, 0, table); });
}

void add_unseen(const std::uint8_t* in, std::size_t count, Presence& presence,
                Histogram& histogram) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    if (presence.has(in[i])) continue;
    presence.add(in[i]);
    ++histogram[in[i]];
  }
}

void equal_masks(const std::uint8_t* in, std::size_t words, std::uint8_t value,
                 std::uint64_t* masks) noexcept {
  for (std::size_t word = 0; word < words; ++word) {
    std::uint64_t mask = 0;
    for (std::size_t bit = 0; bit < 64; ++bit) {
      mask |= std::uint64_t{in[64 * word + bit] == value} << bit;
    }
    masks[word] = mask;
  }
}

}  // namespace

std::uint8_t* encode_rest(std::span<const std::uint8_t> in, const EncodeTable& table,
                          PendingBits pending, std::span<std::uint8_t> out) noexcept {
  std::uint8_t* to = out.data();
  std::uint8_t* const end = to + out.size();
  auto [bits, count] = pending;
  for (const std::uint8_t symbol : in) {
    const std::uint64_t entry = table[symbol];
    bits = bits << (entry & 63) | entry >> 6;
    count += entry & 63;
    for (; count >= 8; count -= 8) {
      if (to == end) return nullptr;
      *to++ = static_cast<std::uint8_t>(bits >> (count - 8));
    }
  }
  if (count == 0) return to;
  if (to == end) return nullptr;
  *to++ = static_cast<std::uint8_t>(bits << (8 - count));
  return to;
}

bool decode_rest(const Stream& stream, std::size_t bit, std::size_t done,
                 const DecodeTable& table) noexcept {
  const std::size_t bits = 8 * stream.in_bytes;
  // Eleven bits from here; past the end there are zeros.
  const auto peek = [&](std::size_t from) {
    std::uint32_t window = 0;
    for (std::size_t byte = from / 8; byte < from / 8 + 3; ++byte) {
      window = window << 8 | (byte < stream.in_bytes ? stream.in[byte] : 0u);
    }
    return window >> (24 - kMaxCodeBits - from % 8) & (kKraftOne - 1);
  };
  for (; done < stream.out_bytes && bit < bits; ++done) {
    const auto symbol = static_cast<std::uint8_t>(table.entries[peek(bit)] >> 8);
    stream.out[done] = symbol;
    bit += table.lengths[symbol];
  }
  if (done != stream.out_bytes || bit > bits) return false;
  return bits - bit < 8 && peek(bit) == 0;
}

const EntropyKernels kScalarEntropy = {encode_stream, decode_streams, add_unseen, equal_masks};

const EntropyKernels& entropy_kernels() noexcept {
  return target::choose(entropy_highway, kScalarEntropy);
}

}  // namespace tern::codec::entropy
