#include "ctl/session.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "ctl/control_client.h"

namespace tern::ctl {

using nlohmann::json;

Result<json> Session::ask(std::string_view verb, const json& args) const {
  const auto timeout = std::chrono::milliseconds(static_cast<std::int64_t>(timeout_s * 1e3));
  return ask_daemon(socket_path, verb, args, timeout);
}

Result<json> Session::ask(std::string_view verb) const { return ask(verb, json::object()); }

Result<json> Session::ask_for_shown(std::string_view verb) const {
  auto answer = ask(verb);
  if (!answer && answer.error().code == Errc::permission_denied) return json();
  return answer;
}

std::string for_observers(std::string_view what) {
  return fmt::format(
      "{} shown to observers alone: use sudo, or have the daemon's setting `observers` name you",
      what);
}

ExitCode exit_code_of(Errc code) {
  switch (code) {
    case Errc::ok:
      return ExitCode::ok;
    case Errc::daemon_absent:
      return ExitCode::daemon_absent;
    case Errc::permission_denied:
      return ExitCode::permission_denied;
    case Errc::version_mismatch:
      return ExitCode::version_mismatch;
    case Errc::timeout:
    case Errc::protocol_error:
      return ExitCode::no_answer;
    default:
      return ExitCode::failed;
  }
}

ExitCode explain(const Error& error) {
  fmt::print(stderr, "ternctl: {}\n", error.text);
  return exit_code_of(error.code);
}

std::string json_text(const json& value, int indent) {
  return value.dump(indent, ' ', false, json::error_handler_t::replace);
}

}  // namespace tern::ctl
