#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "codec/entropy/huffman_tables.h"

// Static Huffman codebooks: trained off line from recorded tensors, known to both ends. A block
// names its book by hash.
namespace tern::codec::entropy {

struct Codebook {
  std::string name;                         // [a-z0-9_.-], 1 to 23 characters
  std::array<std::uint8_t, 256> lengths{};  // canonical code lengths; every symbol has one
  std::uint64_t hash() const noexcept;      // of the lengths
};

// The lengths for these frequencies, each raised by one, so that every symbol has a code.
Codebook train_codebook(std::string name, const std::array<std::uint64_t, 256>& histogram);

// The file: docs/entropy-coders.md.
std::string codebook_text(const Codebook& book);
Result<Codebook> parse_codebook(std::string_view text);

// The books that blocks may name from now on. Call once, before any other thread uses a codec;
// later calls replace all (tests).
Result<void> install_codebooks(std::vector<Codebook> books);

bool has_codebook(std::string_view name) noexcept;

// A codebook with the tables that coding by it needs.
struct InstalledBook {
  Codebook book;
  std::uint64_t hash = 0;
  EncodeTable encode;
  DecodeTable decode;
};
// Null: there is no such book.
const InstalledBook* find_codebook(std::string_view name) noexcept;
const InstalledBook* find_codebook(std::uint64_t hash) noexcept;

}  // namespace tern::codec::entropy
