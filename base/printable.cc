#include "base/printable.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace tern {
namespace {

struct Piece {
  std::size_t bytes = 1;
  bool plain = false;
};

struct Range {
  std::uint32_t first, last;
};

// Beside the control characters.
constexpr Range kHidden[] = {
    {0xad, 0xad},        // soft hyphen
    {0x61c, 0x61c},      // Arabic letter mark
    {0x180e, 0x180e},    // Mongolian vowel separator
    {0x200b, 0x200f},    // zero width, left-to-right and right-to-left marks
    {0x2028, 0x202e},    // line and paragraph separators, embeddings and overrides
    {0x2060, 0x206f},    // joiners, isolates
    {0xfeff, 0xfeff},    // byte order mark
    {0xfff9, 0xfffb},    // annotations
    {0xe0000, 0xe007f},  // tags
};

constexpr bool is_plain(std::uint32_t code) noexcept {
  if (code < 0x20 || (code >= 0x7f && code < 0xa0)) return false;
  return std::none_of(std::begin(kHidden), std::end(kHidden), [code](const Range& range) {
    return code >= range.first && code <= range.last;
  });
}

// The character that begins here. What is not UTF-8 is a piece of one byte.
Piece first_piece(std::string_view text) noexcept {
  const auto byte = [&text](std::size_t at) { return static_cast<unsigned char>(text[at]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {1, is_plain(lead)};
  const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < length) return {};
  std::uint32_t code = lead & (0xffu >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3fu);
  }
  constexpr std::uint32_t kLeast[] = {0x80, 0x800, 0x10000};
  const bool is_surrogate = code >= 0xd800 && code < 0xe000;
  if (code < kLeast[length - 2] || code > 0x10ffff || is_surrogate) return {};
  return {length, is_plain(code)};
}

}  // namespace

bool is_printable(std::string_view text) noexcept {
  while (!text.empty()) {
    const Piece piece = first_piece(text);
    if (!piece.plain) return false;
    text.remove_prefix(piece.bytes);
  }
  return true;
}

std::string printable(std::string_view text) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Piece piece = first_piece(text);
    if (piece.plain) {
      out += text.substr(0, piece.bytes);
    } else {
      for (const char c : text.substr(0, piece.bytes)) {
        const auto byte = static_cast<unsigned char>(c);
        out += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
      }
    }
    text.remove_prefix(piece.bytes);
  }
  return out;
}

}  // namespace tern
