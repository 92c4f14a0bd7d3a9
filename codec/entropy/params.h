#pragma once

#include <array>
#include <cstdint>

#include "wire/block.h"

// What an entropy coder is told and what it answers, for its callers and for each of them.
namespace tern::codec::entropy {

using Kind = wire::EntropyId;

struct Params {
  Kind kind = Kind::none;
  // huffman with a static codebook: its name, zero-padded; empty: the codebook is made anew for
  // each block and travels in it.
  std::array<char, 24> book{};

  friend bool operator==(const Params&, const Params&) = default;
};

enum class Status : std::uint8_t {
  ok,
  corrupt,       // not this coder's output, or not of out.size() bytes
  unknown_book,  // static codebook: this node has none with the hash that the block names
};

}  // namespace tern::codec::entropy
