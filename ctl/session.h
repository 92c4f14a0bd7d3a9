#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/result.h"
#include "ctl/exit_code.h"

namespace tern::ctl {

// Which daemon is asked, and how.
struct Session {
  std::string socket_path = "/run/tern/control.sock";
  double timeout_s = 5;
  bool as_json = false;

  Result<nlohmann::json> ask(std::string_view verb, const nlohmann::json& args) const;
  Result<nlohmann::json> ask(std::string_view verb) const;
  // Null for what the daemon does not show to this user: the other answers have their worth.
  Result<nlohmann::json> ask_for_shown(std::string_view verb) const;
};

// "peers are shown to observers alone", and what to do about it.
std::string for_observers(std::string_view what);

ExitCode exit_code_of(Errc code);

// Prints the error for people, and gives the exit status that goes with it.
ExitCode explain(const Error& error);

// As one text; bytes that are no UTF-8 are replaced. indent -1: one line.
std::string json_text(const nlohmann::json& value, int indent);

}  // namespace tern::ctl
