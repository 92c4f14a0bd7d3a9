#include "codec/recipe.h"

#include <algorithm>
#include <cstddef>

#include "codec/recipe_stages.h"

namespace tern::codec {
namespace {

// Where and why a text is no recipe. Only literals, so that failing allocates nothing.
struct ParseFailure {
  std::size_t at = 0;
  std::string_view reason;
  std::string_view allowed;
  StagePlace after =
      StagePlace::whole;  // the names of the stages that may follow it are allowed as well
  bool first_stage = false;
  bool stages_allowed = false;
};

constexpr std::string_view kMemories = "auto, none(...), ef(...), diana(...), ef21(...)";

constexpr bool is_word_character(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-';
}

const Stage* find_stage(std::string_view name) noexcept {
  for (const Stage& stage : stages()) {
    if (stage.name == name) return &stage;
  }
  return nullptr;
}

// What drops a biased error gets error feedback; what is exact, nearly so or unbiased does not.
Memory usual_memory(const Recipe& recipe) noexcept {
  if (!is_lossy(recipe)) return Memory::none;
  const auto kind = recipe.quantizer.kind;
  const bool sparse = recipe.sparsifier.kind != sparsifier::Kind::none;
  const bool near = kind == quantizer::Kind::raw || kind == quantizer::Kind::bf16 ||
                    kind == quantizer::Kind::fp16;
  if (!sparse && near) return Memory::none;
  return omega(recipe, wire::kBlockRunElements) >= 0.0 ? Memory::none : Memory::ef;
}

// The forms of their own that raw, bf16 and 3lc have when nothing stands before or behind them.
void choose_form(Recipe& recipe) noexcept {
  if (recipe.compressor != Compressor::staged || recipe.sparsifier.kind != sparsifier::Kind::none ||
      recipe.entropy.kind != entropy::Kind::none) {
    return;
  }
  if (recipe.quantizer.kind == quantizer::Kind::raw) recipe.compressor = Compressor::raw;
  if (recipe.quantizer.kind == quantizer::Kind::bf16) recipe.compressor = Compressor::bf16;
  if (recipe.quantizer.kind == quantizer::Kind::threelc) recipe.compressor = Compressor::threelc;
}

// Reads left to right and never goes back further than the word it has just read.
class Parser {
 public:
  explicit Parser(std::string_view text) noexcept : text_(text) {}

  bool parse(Recipe& recipe) noexcept {
    const std::string_view first = word();
    if (first == "auto") {
      recipe.automatic = true;
    } else if (memory_named(first, recipe.memory)) {
      if (!memory_body(recipe)) return false;
    } else {
      position_ = 0;
      if (!compressor(recipe, true)) return false;
      recipe.memory = usual_memory(recipe);
    }
    if (position_ != text_.size()) return fail_here("nothing may follow here", "the end");
    return true;
  }

  const ParseFailure& failure() const noexcept { return failure_; }

 private:
  static bool memory_named(std::string_view name, Memory& memory) noexcept {
    if (name == "none")
      memory = Memory::none;
    else if (name == "ef")
      memory = Memory::ef;
    else if (name == "diana")
      memory = Memory::diana;
    else if (name == "ef21")
      memory = Memory::ef21;
    else
      return false;
    return true;
  }

  bool memory_body(Recipe& recipe) noexcept {
    if (peek() == ':') {
      if (recipe.memory != Memory::diana) {
        return fail_here("this memory has no parameters", "(compressor)");
      }
      ++position_;
      const std::span<const StageParam> alpha(&kAlphaParam, 1);
      if (!parameters(alpha, "alpha=0..1", recipe)) return false;
    }
    if (!take('(')) return fail_here("the compressor is missing", "(compressor)");
    const std::size_t start = position_;
    if (!compressor(recipe, false)) return false;
    const Objection objection = objection_to(recipe);
    if (objection.reason != nullptr) return fail_at(start, objection.reason, objection.allowed);
    if (!take(')')) return fail_here("the parenthesis is not closed", ")");
    return true;
  }

  bool compressor(Recipe& recipe, bool first) noexcept {
    const std::size_t begin = position_;
    const Stage* last = nullptr;
    do {
      const std::size_t start = position_;
      const std::string_view name = word();
      const Stage* const stage = find_stage(name);
      if (stage == nullptr || !may_follow(stage, last)) {
        return fail_stage(start, {name, stage, last}, first);
      }
      last = stage;
      stage->choose(recipe);
      if (take(':')) {
        if (stage->params.empty()) {
          return fail_at(position_ - 1, "this stage has no parameters", "nothing");
        }
        if (!parameters(stage->params, stage->params_allowed, recipe)) return false;
      }
    } while (take('+'));
    choose_form(recipe);
    if (!first) return true;
    const Objection objection = objection_to(recipe);
    if (objection.reason != nullptr) return fail_at(begin, objection.reason, objection.allowed);
    return true;
  }

  static bool may_follow(const Stage* stage, const Stage* last) noexcept {
    if (last == nullptr) return stage->place != StagePlace::entropy;
    return last->place != StagePlace::whole && stage->place != StagePlace::whole &&
           stage->place > last->place;
  }

  // A word that is no stage here.
  struct Misfit {
    std::string_view name;
    const Stage* stage;  // null: there is none of that name
    const Stage* last;   // the stage before it
  };
  bool fail_stage(std::size_t start, const Misfit& misfit, bool first) noexcept {
    const auto& [name, stage, last] = misfit;
    const char* reason = "no such compressor";
    if (name.empty()) {
      reason = last == nullptr ? "a compressor is missing" : "a stage is missing";
    } else if (stage != nullptr) {
      reason = last == nullptr ? "an entropy coder needs something before it"
               : stage->place == StagePlace::whole || last->place == StagePlace::whole
                   ? "this codec stands alone"
                   : "the order is sparsifier + quantizer + entropy coder, one of each";
    }
    fail_at(start, reason, last == nullptr && first ? kMemories : std::string_view{});
    failure_.stages_allowed = true;
    failure_.first_stage = last == nullptr;
    if (last != nullptr) failure_.after = last->place;
    return false;
  }

  bool parameters(std::span<const StageParam> params, std::string_view allowed,
                  Recipe& recipe) noexcept {
    unsigned seen = 0;
    do {
      const std::size_t start = position_;
      const std::string_view name = word();
      std::size_t index = 0;
      while (index < params.size() && params[index].name != name) ++index;
      if (index == params.size()) return fail_at(start, "no such parameter", allowed);
      if ((seen >> index & 1u) != 0) {
        return fail_at(start, "this parameter is given twice", "nothing");
      }
      seen |= 1u << index;
      if (!take('=')) return fail_here("the value is missing", "=value");
      const std::size_t value_start = position_;
      if (const char* problem = params[index].read(word(), recipe)) {
        return fail_at(value_start, problem, params[index].allowed);
      }
    } while (take(','));
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
    failure_ = {};
    failure_.at = at;
    failure_.reason = reason;
    failure_.allowed = allowed;
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

std::string allowed_text(const ParseFailure& failure) {
  std::string text(failure.allowed);
  if (!failure.stages_allowed) return text;
  for (const Stage& stage : stages()) {
    const bool fits = failure.first_stage
                          ? stage.place != StagePlace::entropy
                          : stage.place != StagePlace::whole && stage.place > failure.after;
    if (!fits) continue;
    if (!text.empty()) text += ", ";
    text += stage.name;
  }
  return text.empty() ? "the end" : text;
}

void append_params(std::string& text, std::span<const StageParam> params, const Recipe& recipe) {
  char separator = ':';
  for (const StageParam& param : params) {
    const std::string value = param.print(recipe);
    if (value.empty()) continue;
    text += separator;
    text += param.name;
    text += '=';
    text += value;
    separator = ',';
  }
}

std::string_view memory_name(Memory memory) noexcept {
  switch (memory) {
    case Memory::none:
      return "none";
    case Memory::ef:
      return "ef";
    case Memory::diana:
      return "diana";
    case Memory::ef21:
      return "ef21";
  }
  return "unknown";
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
  message += allowed_text(failure);
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
  std::string text(memory_name(recipe.memory));
  append_params(text, {&kAlphaParam, recipe.memory == Memory::diana ? 1u : 0u}, recipe);
  text += '(';
  const bool sparse = recipe.sparsifier.kind != sparsifier::Kind::none;
  bool first = true;
  for (const Stage& stage : stages()) {
    if (!stage.chosen(recipe)) continue;
    // Behind a sparsifier the values travel as they are unless a quantizer is named.
    if (sparse && stage.place == StagePlace::quantizer &&
        recipe.quantizer.kind == quantizer::Kind::raw) {
      continue;
    }
    if (!first) text += '+';
    first = false;
    text += stage.name;
    append_params(text, stage.params, recipe);
  }
  return text + ')';
}

}  // namespace tern::codec
