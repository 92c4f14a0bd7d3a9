#pragma once

#include <cstdint>
#include <type_traits>

#include "codec/entropy/params.h"
#include "codec/quantizer/params.h"
#include "codec/sparsifier/params.h"
#include "wire/block.h"

// What a recipe is made of. Its text form and what follows from it are in recipe.h.
namespace tern::codec {

// What the ends keep between steps. Declared with the tensor and fixed for an epoch.
enum class Memory : std::uint8_t {
  none = 0,   // nothing
  ef = 1,     // error feedback: what a step dropped is added to the next
  diana = 2,  // a shift at both ends that learns the input; its unbiased difference is sent
  ef21 = 3,   // the same with a contractive compressor and alpha = 1
};

// Which form of block a recipe makes. `staged` is a sparsifier, a quantizer and an entropy coder,
// of which the first and the last may be none; raw, bf16 and 3lc on their own have shorter forms.
using Compressor = wire::CodecId;

enum class Layout : std::uint8_t { tile = 0, paper = 1 };

// How a chunk is encoded. Plain data, so that it can be copied into a ring or compared in a lane.
// The text form is `memory[:params](stage+stage+...)`; docs/codecs.md has the grammar.
struct Recipe {
  Memory memory = Memory::none;
  Compressor compressor = Compressor::raw;
  bool automatic = false;  // `auto`: the tuner decides, until then it is raw
  float alpha = 0.0f;      // diana: how fast the shift moves; 0: 1 / (1 + omega)
  sparsifier::Params sparsifier;
  quantizer::Params quantizer;
  entropy::Params entropy;
  // The quantizer 3lc has these instead of quantizer::Params.
  Layout layout = Layout::tile;
  bool zero_run = true;
  std::uint8_t pad_digit = 1;           // 1 is ternary zero; 0 is the letter of the paper
  std::uint32_t scale_elements = 4096;  // elements per scale; 0 is `scale=tensor`
  float s = 1.0f;                       // sparsity multiplier, 1 <= s < 2

  friend bool operator==(const Recipe&, const Recipe&) = default;
};
static_assert(std::is_trivially_copyable_v<Recipe>);

constexpr bool is_lossless(const Recipe& recipe) noexcept {
  return recipe.compressor == Compressor::lossless || recipe.compressor == Compressor::xordelta;
}

constexpr bool is_lossy(const Recipe& recipe) noexcept {
  return recipe.compressor != Compressor::raw && !is_lossless(recipe);
}

}  // namespace tern::codec
