#include "codec/recipe.h"

#include <algorithm>
#include <charconv>
#include <cstddef>

#include "wire/block.h"

namespace tern::codec {
namespace {

// Where and why a text is no recipe. Only literals, so that failing allocates nothing.
struct ParseFailure {
  std::size_t at = 0;
  std::string_view reason;
  std::string_view allowed;
};

constexpr std::string_view kStarts =
    "auto, raw, bf16, 3lc[:params], none(compressor) or ef(compressor)";
constexpr std::string_view kCompressors = "raw, bf16 or 3lc[:params]";
constexpr std::string_view kThreelcParams =
    "s=1..2 (2 excluded), scale=ELEMENTS or scale=tensor, layout=tile|paper, zrun=on|off, pad=0|1";
constexpr std::string_view kScales = "tensor, or a multiple of 64 from 64 to 1048576";
constexpr std::string_view kFactors = "a decimal number with 1 <= s < 2, for example 1 or 1.75";

// Words that are planned, so that a user learns that the word is right and the version is not.
constexpr std::string_view kPlannedMemories[] = {"diana", "ef21"};
constexpr std::string_view kPlannedStages[] = {
    "int8",  "int4",  "sign",    "onebit",  "ternary",  "dither",   "natural", "topk",
    "randk", "lloyd", "bitmask", "huffman", "lossless", "powersgd", "delta"};

template <std::size_t N>
bool listed(const std::string_view (&words)[N], std::string_view word) noexcept {
  for (const std::string_view candidate : words) {
    if (candidate == word) return true;
  }
  return false;
}

constexpr bool is_word_character(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
}

// Reads left to right and never goes back further than the word it has just read.
class Parser {
 public:
  explicit Parser(std::string_view text) noexcept : text_(text) {}

  bool parse(Recipe& recipe) noexcept {
    const std::size_t start = position_;
    const std::string_view first = word();
    if (first == "auto") {
      recipe.automatic = true;
    } else if (first == "none" || first == "ef") {
      recipe.memory = first == "ef" ? Memory::ef : Memory::none;
      if (!memory_body(recipe)) return false;
    } else if (listed(kPlannedMemories, first)) {
      return fail_at(start, "this memory is not available in this version", kStarts);
    } else {
      position_ = start;
      if (!compressor(recipe, kStarts)) return false;
      if (recipe.compressor == Compressor::threelc) recipe.memory = Memory::ef;
    }
    if (position_ != text_.size()) return fail_here("nothing may follow here", "the end");
    return true;
  }

  const ParseFailure& failure() const noexcept { return failure_; }

 private:
  bool memory_body(Recipe& recipe) noexcept {
    if (peek() == ':') return fail_here("none and ef have no parameters", "(compressor)");
    if (!take('(')) return fail_here("the compressor is missing", "(compressor)");
    const std::size_t start = position_;
    if (!compressor(recipe, kCompressors)) return false;
    if (recipe.memory == Memory::ef && recipe.compressor == Compressor::raw) {
      return fail_at(start, "raw drops nothing, so it has no error to feed back", "bf16 or 3lc");
    }
    if (!take(')')) return fail_here("the parenthesis is not closed", ")");
    return true;
  }

  bool compressor(Recipe& recipe, std::string_view allowed) noexcept {
    const std::size_t start = position_;
    const std::string_view name = word();
    if (name == "raw") {
      recipe.compressor = Compressor::raw;
    } else if (name == "bf16") {
      recipe.compressor = Compressor::bf16;
    } else if (name == "3lc") {
      recipe.compressor = Compressor::threelc;
    } else if (listed(kPlannedStages, name)) {
      return fail_at(start, "this stage is not available in this version", allowed);
    } else {
      return fail_at(start, name.empty() ? "a compressor is missing" : "no such compressor",
                     allowed);
    }
    if (take(':')) {
      if (recipe.compressor != Compressor::threelc) {
        return fail_at(position_ - 1, "this compressor has no parameters", "nothing");
      }
      if (!parameters(recipe)) return false;
    }
    if (peek() == '+') {
      return fail_here("a second stage is not available in this version", "nothing");
    }
    return true;
  }

  bool parameters(Recipe& recipe) noexcept {
    unsigned seen = 0;
    do {
      const std::size_t start = position_;
      const std::string_view name = word();
      const unsigned bit = parameter_bit(name);
      if (bit == 0) return fail_at(start, "no such parameter", kThreelcParams);
      if ((seen & bit) != 0) return fail_at(start, "this parameter is given twice", "nothing");
      seen |= bit;
      if (!take('=')) return fail_here("the value is missing", "=value");
      if (!value(name, recipe)) return false;
    } while (take(','));
    return true;
  }

  static unsigned parameter_bit(std::string_view name) noexcept {
    if (name == "s") return 1;
    if (name == "scale") return 2;
    if (name == "layout") return 4;
    if (name == "zrun") return 8;
    if (name == "pad") return 16;
    return 0;
  }

  bool value(std::string_view name, Recipe& recipe) noexcept {
    const std::size_t start = position_;
    const std::string_view text = word();
    if (name == "s") return factor(start, text, recipe);
    if (name == "scale") return scale(start, text, recipe);
    if (name == "layout") {
      if (text != "tile" && text != "paper")
        return fail_at(start, "no such layout", "tile or paper");
      recipe.layout = text == "paper" ? Layout::paper : Layout::tile;
    } else if (name == "zrun") {
      if (text != "on" && text != "off") return fail_at(start, "zrun is a switch", "on or off");
      recipe.zero_run = text == "on";
    } else {
      if (text != "0" && text != "1") return fail_at(start, "no such pad digit", "0 or 1");
      recipe.pad_digit = text == "0" ? 0 : 1;
    }
    return true;
  }

  bool factor(std::size_t start, std::string_view text, Recipe& recipe) noexcept {
    float parsed = 0;
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, parsed, std::chars_format::fixed);
    if (text.empty() || error != std::errc{} || rest != end) {
      return fail_at(start, "this is no number", kFactors);
    }
    if (!(parsed >= 1.0f && parsed < 2.0f)) {
      return fail_at(start, "s must be at least 1 and less than 2", kFactors);
    }
    recipe.s = parsed;
    return true;
  }

  bool scale(std::size_t start, std::string_view text, Recipe& recipe) noexcept {
    if (text == "tensor") {
      recipe.scale_elements = 0;
      return true;
    }
    std::uint32_t parsed = 0;
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, parsed);
    if (text.empty() || error != std::errc{} || rest != end) {
      return fail_at(start, "this is no count of elements", kScales);
    }
    if (parsed == 0 || parsed % wire::kBlockRunElements != 0 || parsed > wire::kMaxBlockElements) {
      return fail_at(start, "a scale covers whole runs of 64 elements", kScales);
    }
    recipe.scale_elements = parsed;
    return true;
  }

  std::string_view word() noexcept {
    const std::size_t start = position_;
    while (position_ < text_.size() && is_word_character(text_[position_])) ++position_;
    return text_.substr(start, position_ - start);
  }

  char peek() const noexcept { return position_ < text_.size() ? text_[position_] : '\0'; }

  bool take(char c) noexcept {
    if (position_ >= text_.size() || text_[position_] != c) return false;
    ++position_;
    return true;
  }

  bool fail_here(std::string_view reason, std::string_view allowed) noexcept {
    return fail_at(position_, reason, allowed);
  }

  bool fail_at(std::size_t at, std::string_view reason, std::string_view allowed) noexcept {
    failure_ = {at, reason, allowed};
    return false;
  }

  std::string_view text_;
  std::size_t position_ = 0;
  ParseFailure failure_;
};

// A foreign text goes to terminals and logs: control characters become '?', and length is bounded.
std::string printable(std::string_view text) {
  constexpr std::size_t kLongest = 200;
  std::string result(text.substr(0, kLongest));
  for (char& c : result) {
    if (c < ' ' || c > '~') c = '?';
  }
  return result;
}

std::string_view compressor_name(Compressor compressor) noexcept {
  switch (compressor) {
    case Compressor::raw:
      return "raw";
    case Compressor::bf16:
      return "bf16";
    case Compressor::threelc:
      return "3lc";
  }
  return "unknown";
}

std::string shortest(float value) {
  char buffer[32];
  const auto [end, error] =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::fixed);
  return error == std::errc{} ? std::string(buffer, end) : std::string("?");
}

}  // namespace

Result<Recipe> parse_recipe(std::string_view text) {
  Recipe recipe;
  Parser parser(text);
  if (parser.parse(recipe)) return recipe;
  const ParseFailure& failure = parser.failure();
  const std::string shown = printable(text);
  std::string message = "bad recipe: ";
  message += failure.reason;
  message += "\n  " + shown + "\n  ";
  message.append(std::min(failure.at, shown.size()), ' ');
  message += "^ column " + std::to_string(failure.at + 1) + "\n  allowed here: ";
  message += failure.allowed;
  return fail(Errc::bad_recipe, std::move(message));
}

bool parse_recipe_quick(std::string_view text, Recipe& recipe) noexcept {
  Recipe parsed;
  if (!Parser(text).parse(parsed)) return false;
  recipe = parsed;
  return true;
}

std::string canonical_text(const Recipe& recipe) {
  if (recipe.automatic) return "auto";
  std::string text = recipe.memory == Memory::ef ? "ef(" : "none(";
  text += compressor_name(recipe.compressor);
  if (recipe.compressor == Compressor::threelc) {
    text += ":s=" + shortest(recipe.s) + ",scale=";
    text += recipe.scale_elements == 0 ? "tensor" : std::to_string(recipe.scale_elements);
    if (recipe.layout == Layout::paper) text += ",layout=paper";
    if (!recipe.zero_run) text += ",zrun=off";
    if (recipe.pad_digit == 0) text += ",pad=0";
  }
  text += ")";
  return text;
}

}  // namespace tern::codec
