#include "codec/entropy/huffman_tables.h"

#include <algorithm>

namespace tern::codec::entropy {
namespace {

struct OrderedSymbol {
  std::uint8_t symbol;
  std::uint8_t length;
};

// The order of canonical codes. Returns how many symbols have a code.
std::size_t canonical_order(const CodeLengths& lengths,
                            std::array<OrderedSymbol, kSymbols>& order) noexcept {
  std::array<std::size_t, kMaxCodeBits + 2> place{};
  for (const std::uint8_t length : lengths) {
    if (length != 0) ++place[length + 1u];
  }
  for (unsigned length = 1; length <= kMaxCodeBits + 1; ++length)
    place[length] += place[length - 1];
  for (std::size_t symbol = 0; symbol < kSymbols; ++symbol) {
    const std::uint8_t length = lengths[symbol];
    if (length != 0) order[place[length]++] = {static_cast<std::uint8_t>(symbol), length};
  }
  return place[kMaxCodeBits];
}

constexpr std::uint64_t kFiveSymbols = 0x0000'ffff'ffff'ff00u;
constexpr std::uint64_t kCountAndBits = 0xff00'0000'0000'00ffu;

// One more symbol in front of what is left of the bits after it.
inline std::uint64_t prepend(std::uint64_t rest, std::uint64_t front) noexcept {
  return ((rest & kFiveSymbols) << 8) + (rest & kCountAndBits) + front;
}

// The same where there may be six already: the last one goes.
inline std::uint64_t prepend_to_full(std::uint64_t rest, std::uint64_t front,
                                     const CodeLengths& lengths) noexcept {
  std::uint64_t made = prepend(rest, front);
  if (rest >> 56 == DecodeTable::kMostSymbols) {
    made -= std::uint64_t{1} << 56;
    made -= lengths[rest >> 48 & 0xff];
  }
  return made;
}

}  // namespace

EncodeTable make_encode_table(const CodeLengths& lengths) noexcept {
  const Codes codes = canonical_codes(lengths);
  EncodeTable table;
  for (std::size_t symbol = 0; symbol < kSymbols; ++symbol) {
    table[symbol] = static_cast<std::uint32_t>(codes[symbol]) << 6 | lengths[symbol];
  }
  return table;
}

void make_decode_table(const CodeLengths& lengths, SmallerTables& smaller,
                       DecodeTable& table) noexcept {
  table.lengths = lengths;
  std::array<OrderedSymbol, kSymbols> order;
  const std::size_t count = canonical_order(lengths, order);
  // Seven codes of 11 bits in all need one of a single bit.
  const bool may_fill = count != 0 && order[0].length == 1;
  for (unsigned bits = 0; bits <= kMaxCodeBits; ++bits) {
    std::uint64_t* const begin =
        bits == kMaxCodeBits ? table.entries.data() : smaller.data() + (std::size_t{1} << bits);
    std::uint64_t* out = begin;
    for (std::size_t i = 0; i < count && order[i].length <= bits; ++i) {
      const unsigned left = bits - order[i].length;
      const std::size_t size = std::size_t{1} << left;
      const std::uint64_t* const rest = smaller.data() + size;
      const std::uint64_t front = std::uint64_t{1} << 56 |
                                  static_cast<std::uint64_t>(order[i].symbol) << 8 |
                                  order[i].length;
      if (may_fill) {
        for (std::size_t j = 0; j < size; ++j) out[j] = prepend_to_full(rest[j], front, lengths);
      } else {
        for (std::size_t j = 0; j < size; ++j) out[j] = prepend(rest[j], front);
      }
      out += size;
    }
    // Longer codes begin here; of them nothing is known in so few bits.
    std::fill(out, begin + (std::size_t{1} << bits), std::uint64_t{0});
  }
}

}  // namespace tern::codec::entropy
