#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "codec/recipe_parts.h"

namespace tern::codec {

// For people: the error text repeats the recipe, puts a caret under the place, and lists what is
// allowed there.
Result<Recipe> parse_recipe(std::string_view text);

// The same grammar without a text for the error and without allocation. `recipe` is written only
// on success.
[[nodiscard]] bool parse_recipe_quick(std::string_view text, Recipe& recipe) noexcept;

// The one spelling of a recipe: parse_recipe(canonical_text(r)) == r. Defaults other than those
// that make the recipe what it is (s and scale, bits, shares) are left out.
std::string canonical_text(const Recipe& recipe);

// One float per element at the sender. Under diana and ef21 it is the shift, and each receiver of
// the stream keeps the same one.
constexpr bool has_memory(const Recipe& recipe) noexcept { return recipe.memory != Memory::none; }
constexpr bool needs_residual(const Recipe& recipe) noexcept { return recipe.memory == Memory::ef; }
constexpr bool needs_shift(const Recipe& recipe) noexcept {
  return recipe.memory == Memory::diana || recipe.memory == Memory::ef21;
}

// Null, or why these parts make no sense together: an op's own compressor inside a declared memory.
const char* objection_to_parts(const Recipe& recipe) noexcept;

// scale=tensor needs to see the whole tensor before the first chunk is encoded.
constexpr bool scans_tensor(const Recipe& recipe) noexcept {
  return recipe.compressor == Compressor::threelc && recipe.scale_elements == 0;
}

// A random sparsifier has nothing to do on a leg on which all get the same: what it drops there is
// lost to all of them, and independent choices were its point (arXiv:1901.09437). With a residual
// or a contractive shift nothing is lost.
constexpr bool sparsifies_results(const Recipe& recipe) noexcept {
  const bool random = recipe.sparsifier.kind == sparsifier::Kind::randk ||
                      recipe.sparsifier.kind == sparsifier::Kind::blocksparse;
  return !random || recipe.memory == Memory::ef || recipe.memory == Memory::ef21;
}

// Without it nothing may be left of a recipe: then results travel as they are, in their own type.
constexpr bool results_are_raw(const Recipe& recipe) noexcept {
  return !sparsifies_results(recipe) && recipe.quantizer.kind == quantizer::Kind::raw &&
         recipe.entropy.kind == entropy::Kind::none;
}

// E||C(x) - x||^2 <= omega ||x||^2 for unbiased recipes and chunks of at most so many elements;
// negative for biased ones. Sparsifier and quantizer multiply: 1 + omega = (1 + o1)(1 + o2).
double omega(const Recipe& recipe, std::size_t elements) noexcept;

// How far a shift moves along each decoded difference, for chunks of at most so many elements: 1
// for ef21; for diana alpha, or 1 / (1 + omega), beyond which it does not converge (Mishchenko et
// al., arXiv:1901.09269; Horvath et al., arXiv:1904.05115).
float shift_alpha(const Recipe& recipe, std::size_t elements) noexcept;

}  // namespace tern::codec
