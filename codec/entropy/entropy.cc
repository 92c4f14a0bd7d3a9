#include "codec/entropy/entropy.h"

#include <algorithm>

#include "codec/entropy/stages.h"

namespace tern::codec::entropy {
namespace {

Bytes as_symbols(std::span<const std::byte> bytes) noexcept {
  return {reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()};
}

MutableBytes as_symbols(std::span<std::byte> bytes) noexcept {
  return {reinterpret_cast<std::uint8_t*>(bytes.data()), bytes.size()};
}

}  // namespace

struct Scratch::Contexts {
  HuffmanScratch huffman;
  LibraryContexts libraries;
};

// Not value-initialized: the tables are written before they are read, and untouched pages are free.
Scratch::Scratch() : contexts_(new Contexts) {}
Scratch::~Scratch() = default;
Scratch::Scratch(Scratch&&) noexcept = default;
Scratch& Scratch::operator=(Scratch&&) noexcept = default;

std::size_t encode(const Params& params, std::span<const std::byte> in, std::span<std::byte> out,
                   Scratch& scratch) noexcept {
  if (in.empty() || out.empty()) return 0;
  const Bytes from = as_symbols(in);
  const MutableBytes to = as_symbols(out);
  switch (params.kind) {
    case Kind::none:
      return 0;
    case Kind::huffman:
      return huffman_encode(from, to, scratch.contexts().huffman);
    case Kind::huffman_static: {
      const auto* const end = std::find(params.book.begin(), params.book.end(), '\0');
      const InstalledBook* const book = find_codebook(
          std::string_view(params.book.data(), static_cast<std::size_t>(end - params.book.data())));
      return book == nullptr ? 0 : huffman_static_encode(*book, from, to);
    }
    case Kind::zrun:
      return zrun_encode(from, to);
    case Kind::gzip:
    case Kind::zstd:
    case Kind::lz4:
      return scratch.contexts().libraries.encode(params.kind, from, to);
  }
  return 0;
}

Status decode(Kind kind, std::span<const std::byte> in, std::span<std::byte> out,
              Scratch& scratch) noexcept {
  if (in.empty() || out.empty()) return Status::corrupt;
  const Bytes from = as_symbols(in);
  const MutableBytes to = as_symbols(out);
  switch (kind) {
    case Kind::none:
      return Status::corrupt;
    case Kind::huffman:
      return huffman_decode(from, to, scratch.contexts().huffman);
    case Kind::huffman_static:
      return huffman_static_decode(from, to);
    case Kind::zrun:
      return zrun_decode(from, to);
    case Kind::gzip:
    case Kind::zstd:
    case Kind::lz4:
      return scratch.contexts().libraries.decode(kind, from, to);
  }
  return Status::corrupt;
}

}  // namespace tern::codec::entropy
