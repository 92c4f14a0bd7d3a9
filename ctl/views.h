#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

namespace tern::ctl {

// What a verb may be given on the command line, and under which name the daemon gets it.
struct Argument {
  std::string_view name;  // empty: none
  std::string_view placeholder;
  std::string_view help;
  bool required = false;
};

// One verb of ternctl: what it asks the daemon, and how the answer is shown to people.
struct Verb {
  std::string_view name;
  std::string_view help;
  std::string (*render)(const nlohmann::json& result);
  Argument argument = {};
};

std::span<const Verb> verbs();

// nullptr if there is none.
const Verb* find_verb(std::string_view name);

}  // namespace tern::ctl
