#pragma once

#include <span>
#include <string>
#include <string_view>

#include "codec/recipe_parts.h"

// The words of the recipe grammar, in one table that the parser reads and the printer writes.
// Private to codec/.
namespace tern::codec {

enum class StagePlace : unsigned char { sparsifier, quantizer, entropy, whole };

struct StageParam {
  std::string_view name;
  std::string_view allowed;
  // Null, or what is wrong with the value.
  const char* (*read)(std::string_view text, Recipe& recipe) noexcept;
  // Empty: the default, which is not printed.
  std::string (*print)(const Recipe& recipe);
};

struct Stage {
  std::string_view name;
  StagePlace place;
  std::string_view params_allowed;  // empty: it has none
  std::span<const StageParam> params;
  // Makes the recipe one with this stage, at its defaults.
  void (*choose)(Recipe& recipe) noexcept;
  bool (*chosen)(const Recipe& recipe) noexcept;
};

std::span<const Stage> stages() noexcept;

// diana's own.
extern const StageParam kAlphaParam;

// A recipe that parses but makes no sense: null, or the reason, and what would be right.
struct Objection {
  const char* reason = nullptr;
  std::string_view allowed;
};
Objection objection_to(const Recipe& recipe) noexcept;

}  // namespace tern::codec
