#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/result.h"

namespace tern::codec {

// What the sender keeps between steps. Declared with the tensor and fixed for an epoch.
enum class Memory : std::uint8_t {
  none = 0,  // nothing
  ef = 1,    // error feedback: what a step dropped is added to the next
};

enum class Compressor : std::uint8_t { raw = 0, bf16 = 1, threelc = 2 };

enum class Layout : std::uint8_t { tile = 0, paper = 1 };

// How a chunk is encoded. Plain data, so that it can be copied into a ring or compared in a lane.
// The text form is `memory[:params](stage+stage+...)`; docs/codecs.md has the grammar.
struct Recipe {
  Memory memory = Memory::none;
  Compressor compressor = Compressor::raw;
  bool automatic = false;        // `auto`: the tuner decides, until then it is raw
  Layout layout = Layout::tile;  // 3lc only, as are the fields below
  bool zero_run = true;
  std::uint8_t pad_digit = 1;           // 1 is ternary zero; 0 is the letter of the paper
  std::uint32_t scale_elements = 4096;  // elements per scale; 0 is `scale=tensor`
  float s = 1.0f;                       // sparsity multiplier, 1 <= s < 2

  friend bool operator==(const Recipe&, const Recipe&) = default;
};
static_assert(std::is_trivially_copyable_v<Recipe>);

// For people: the error text repeats the recipe, puts a caret under the place, and lists what is
// allowed there.
Result<Recipe> parse_recipe(std::string_view text);

// The same grammar without a text for the error and without allocation. `recipe` is written only
// on success.
[[nodiscard]] bool parse_recipe_quick(std::string_view text, Recipe& recipe) noexcept;

// The one spelling of a recipe: parse_recipe(canonical_text(r)) == r. Defaults other than s and
// scale are left out.
std::string canonical_text(const Recipe& recipe);

constexpr bool is_lossy(const Recipe& recipe) noexcept {
  return recipe.compressor != Compressor::raw;
}

// The residual is as long as the tensor; without it no room is needed.
constexpr bool needs_residual(const Recipe& recipe) noexcept { return recipe.memory == Memory::ef; }

}  // namespace tern::codec
