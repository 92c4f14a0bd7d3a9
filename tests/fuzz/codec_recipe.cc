// Any text: the two parsers agree, and what parses has a canonical text that parses to the same.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "codec/recipe.h"

using namespace tern;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  codec::Recipe quick;
  const bool accepted = codec::parse_recipe_quick(text, quick);
  const auto recipe = codec::parse_recipe(text);
  TERN_CHECK(recipe.has_value() == accepted);
  if (!accepted) {
    TERN_CHECK(!recipe.error().text.empty() && recipe.error().text.size() < 2000);
    return 0;
  }
  TERN_CHECK(*recipe == quick);
  codec::Recipe again;
  TERN_CHECK(codec::parse_recipe_quick(codec::canonical_text(quick), again));
  TERN_CHECK(again == quick);
  return 0;
}
