// A foreign codebook file: what parses must print and parse again as the same book.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "codec/entropy/codebook.h"

using namespace tern;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto book = codec::entropy::parse_codebook(text);
  if (!book) {
    TERN_CHECK(!book.error().text.empty());
    return 0;
  }
  const auto again = codec::entropy::parse_codebook(codec::entropy::codebook_text(*book));
  TERN_CHECK(again.has_value() && again->name == book->name && again->lengths == book->lengths);
  return 0;
}
