#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "codec/entropy/code_lengths.h"

// What the Huffman kernels look up. Private to codec/entropy.
namespace tern::codec::entropy {

// Each entry: code << 6 | length, so that a shift by the entry is one by the length (shifts count
// modulo 64) and the low six bits of a sum of entries are a sum of lengths. 0: no code.
using EncodeTable = std::array<std::uint32_t, kSymbols>;

EncodeTable make_encode_table(const CodeLengths& lengths) noexcept;

// Indexed by the next 11 bits: all symbols that lie in them as a whole, at most six.
//   byte 0     bits that they take, for the same shift by the entry
//   bytes 1-6  the symbols
//   byte 7     how many
struct DecodeTable {
  static constexpr std::uint64_t kMostSymbols = 6;
  alignas(64) std::array<std::uint64_t, kKraftOne> entries;
  CodeLengths lengths;  // of the first symbol, for the last few that are decoded one by one
};

// Tables of 0 to 10 bits, from which the one of 11 is made: the table of r bits at index 2^r.
using SmallerTables = std::array<std::uint64_t, kKraftOne>;

// Requires: kraft_sum(lengths) == kKraftOne.
void make_decode_table(const CodeLengths& lengths, SmallerTables& smaller,
                       DecodeTable& table) noexcept;

}  // namespace tern::codec::entropy
