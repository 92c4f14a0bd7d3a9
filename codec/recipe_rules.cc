// What a recipe means as a whole: which combinations make sense, and how much they vary.

#include <algorithm>
#include <cmath>

#include "codec/quantizer/quantizer.h"
#include "codec/recipe.h"
#include "codec/recipe_stages.h"
#include "codec/sparsifier/sparsifier.h"

namespace tern::codec {

namespace {

constexpr std::string_view kUnbiased =
    "randk or blocksparse, and after it raw, natural, qsgd, terngrad (without clip) or "
    "int:round=stochastic";

}  // namespace

double omega(const Recipe& recipe, std::size_t elements) noexcept {
  if (recipe.compressor == Compressor::raw || is_lossless(recipe)) return 0.0;
  if (recipe.quantizer.kind == quantizer::Kind::threelc) return -1.0;
  const bool sparse = recipe.sparsifier.kind != sparsifier::Kind::none;
  const double dropped = sparse ? sparsifier::omega(recipe.sparsifier, elements) : 0.0;
  const std::size_t kept = sparse ? sparsifier::kept_bound(recipe.sparsifier, elements) : elements;
  const double rounded = quantizer::omega(recipe.quantizer, kept);
  if (dropped < 0.0 || rounded < 0.0) return -1.0;
  return (1.0 + dropped) * (1.0 + rounded) - 1.0;
}

float shift_alpha(const Recipe& recipe, std::size_t elements) noexcept {
  if (recipe.memory == Memory::ef21) return 1.0f;
  if (recipe.alpha != 0.0f) return recipe.alpha;
  return static_cast<float>(1.0 / (1.0 + std::max(0.0, omega(recipe, elements))));
}

Objection objection_to(const Recipe& recipe) noexcept {
  const bool sparse = recipe.sparsifier.kind != sparsifier::Kind::none;
  const bool coded = recipe.entropy.kind != entropy::Kind::none;
  if (recipe.automatic) return {};
  const bool drops = sparse || recipe.quantizer.kind != quantizer::Kind::raw;
  if (!is_lossless(recipe) && !drops && has_memory(recipe)) {
    return {"raw drops nothing, so there is nothing to remember",
            "a lossy compressor, or none(raw)"};
  }
  if (is_lossless(recipe) && has_memory(recipe)) {
    return {"a lossless codec drops nothing, so there is nothing to remember",
            "none(lossless) or none(xordelta)"};
  }
  if (recipe.quantizer.kind == quantizer::Kind::threelc) {
    if (recipe.entropy.kind == entropy::Kind::zrun) {
      return {"3lc has a zero-run stage of its own", "3lc:zrun=on"};
    }
    if (recipe.scale_elements == 0 && (sparse || coded || needs_shift(recipe))) {
      return {"scale=tensor looks at the whole tensor before it is cut in chunks",
              "ef(3lc:scale=tensor) alone, or a number of elements"};
    }
  }
  // Any chunk length will do: being biased does not depend on it.
  if (recipe.memory == Memory::diana && omega(recipe, 4096) < 0.0) {
    return {
        "diana needs an unbiased compressor, or its shift learns the wrong thing; this one is "
        "biased",
        kUnbiased};
  }
  return {};
}

const char* objection_to_parts(const Recipe& recipe) noexcept {
  return objection_to(recipe).reason;
}

}  // namespace tern::codec
