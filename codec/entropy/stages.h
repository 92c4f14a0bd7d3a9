#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "codec/entropy/codebook.h"
#include "codec/entropy/huffman_tables.h"
#include "codec/entropy/params.h"

// The stages behind encode() and decode(). Private to codec/entropy. Every function keeps the
// promises of entropy.h; none is called with an empty input or output.
namespace tern::codec::entropy {

using Bytes = std::span<const std::uint8_t>;
using MutableBytes = std::span<std::uint8_t>;

struct HuffmanScratch {
  EncodeTable encode;
  SmallerTables smaller;
  DecodeTable decode;
};

std::size_t huffman_encode(Bytes in, MutableBytes out, HuffmanScratch& scratch) noexcept;
Status huffman_decode(Bytes in, MutableBytes out, HuffmanScratch& scratch) noexcept;

std::size_t huffman_static_encode(const InstalledBook& book, Bytes in, MutableBytes out) noexcept;
Status huffman_static_decode(Bytes in, MutableBytes out) noexcept;

std::size_t zrun_encode(Bytes in, MutableBytes out) noexcept;
Status zrun_decode(Bytes in, MutableBytes out) noexcept;

// The contexts of gzip, zstd and lz4.
class LibraryContexts {
 public:
  LibraryContexts();
  ~LibraryContexts();
  LibraryContexts(LibraryContexts&&) = delete;

  std::size_t encode(Kind kind, Bytes in, MutableBytes out) noexcept;
  Status decode(Kind kind, Bytes in, MutableBytes out) noexcept;

 private:
  struct Contexts;
  std::unique_ptr<Contexts> contexts_;
};

}  // namespace tern::codec::entropy
