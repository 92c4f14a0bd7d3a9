#pragma once

#include <array>
#include <cstdint>
#include <span>

// Prefix codes for bytes: how long each symbol's code is, and the canonical codes of those lengths.
namespace tern::codec::entropy {

// One look into a table of 2^11 entries of 8 bytes, half of a first-level cache, decodes any code.
inline constexpr unsigned kMaxCodeBits = 11;
inline constexpr std::size_t kSymbols = 256;

using Histogram = std::array<std::uint64_t, kSymbols>;
using CodeLengths = std::array<std::uint8_t, kSymbols>;
using Codes = std::array<std::uint16_t, kSymbols>;

// The code lengths with the least sum of count * length, of those with no length above `limit`; 0
// where the count is 0. A single symbol gets length 1.
// Requires: limit <= 20, no more than 2^limit symbols, counts below 2^48.
CodeLengths code_lengths(const Histogram& counts, unsigned limit = kMaxCodeBits) noexcept;

// In units of 2^-kMaxCodeBits: a complete prefix code has kKraftOne, a possible one no more. A
// length above kMaxCodeBits makes it impossible.
inline constexpr std::uint32_t kKraftOne = 1u << kMaxCodeBits;
std::uint32_t kraft_sum(const CodeLengths& lengths) noexcept;

// Canonical: codes count up over the symbols ordered by length, then by value.
// Requires: kraft_sum(lengths) <= kKraftOne.
Codes canonical_codes(const CodeLengths& lengths) noexcept;

}  // namespace tern::codec::entropy
