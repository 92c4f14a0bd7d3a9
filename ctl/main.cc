#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "ctl/control_client.h"
#include "ctl/exit_code.h"
#include "ctl/views.h"

namespace tern::ctl {
namespace {

using nlohmann::json;

// sizeof(sockaddr_un::sun_path) less the zero.
constexpr std::size_t kMaxSocketPathBytes = 107;
constexpr double kMaxSeconds = 86'400;

struct Request {
  std::string verb;
  std::string argument;
  std::string socket_path = "/run/tern/control.sock";
  double timeout_s = 5;
  double watch_s = 0;  // 0: once
  bool as_json = false;
};

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

void print(const Request& request, const Verb& verb, const json& result) {
  // Watched, each answer is one line, for programs that read as it comes.
  const std::string text = !request.as_json ? verb.render(result)
                                            : result.dump(request.watch_s > 0 ? -1 : 2, ' ', false,
                                                          json::error_handler_t::replace) +
                                                  '\n';
  const bool clear = request.watch_s > 0 && !request.as_json && ::isatty(STDOUT_FILENO) == 1;
  if (clear) std::fputs("\x1b[H\x1b[2J", stdout);
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

ExitCode run(const Request& request) {
  const Verb* const verb = find_verb(request.verb);
  const auto timeout =
      std::chrono::milliseconds(static_cast<std::int64_t>(request.timeout_s * 1e3));
  json args = json::object();
  if (!request.argument.empty()) args[std::string(verb->argument.name)] = request.argument;
  while (true) {
    const auto result = ask_daemon(request.socket_path, request.verb, args, timeout);
    if (!result) {
      fmt::print(stderr, "ternctl: {}\n", result.error().text);
      return exit_code_of(result.error().code);
    }
    print(request, *verb, *result);
    if (std::ferror(stdout) != 0) return ExitCode::failed;
    if (request.watch_s <= 0) return ExitCode::ok;
    std::this_thread::sleep_for(std::chrono::duration<double>(request.watch_s));
  }
}

// CLI::Range lets a NaN pass.
CLI::Validator seconds_from(double min) {
  return CLI::Validator(
      [min](const std::string& text) {
        double value = 0;
        const bool fits =
            CLI::detail::lexical_cast(text, value) && value >= min && value <= kMaxSeconds;
        return fits ? std::string() : fmt::format("must be {} to {} seconds", min, kMaxSeconds);
      },
      "");
}

void add_exit_codes(CLI::App& app) {
  app.footer(
      "Exit status: 0 success, 1 the daemon answered with an error, 2 wrong usage, 3 no daemon,\n"
      "4 access refused, 5 daemon and ternctl are of different versions, 6 no answer in time.");
}

int main_of(int argc, char** argv) {
  Request request;
  CLI::App app("Looks inside the Tern daemon of this node.", "ternctl");
  app.set_version_flag("--version", "ternctl " TERN_VERSION);
  app.add_option("--socket", request.socket_path, "Control socket of the daemon")
      ->envname("TERN_CONTROL_SOCKET")
      ->check(CLI::Validator(
          [](const std::string& path) {
            const bool fits = !path.empty() && path.size() <= kMaxSocketPathBytes;
            return std::string(fits ? "" : "the path of a socket has 1 to 107 bytes");
          },
          ""))
      ->capture_default_str()
      ->type_name("PATH");
  app.add_option("--timeout", request.timeout_s, "Seconds to wait for the daemon")
      ->check(seconds_from(0.001))
      ->capture_default_str()
      ->type_name("SECONDS");
  app.add_option("--watch", request.watch_s, "Ask again every so many seconds, until interrupted")
      ->check(seconds_from(0.01))
      ->type_name("SECONDS");
  app.add_flag("--json", request.as_json, "Print the daemon's result as JSON");
  app.require_subcommand(0, 1);  // without one we say it better
  app.fallthrough();
  for (const Verb& verb : verbs()) {
    CLI::App* const command = app.add_subcommand(std::string(verb.name), std::string(verb.help));
    command->callback([&request, &verb] { request.verb = verb.name; });
    if (verb.argument.name.empty()) continue;
    command
        ->add_option(std::string(verb.argument.name), request.argument,
                     std::string(verb.argument.help))
        ->type_name(std::string(verb.argument.placeholder))
        ->required(verb.argument.required);
  }
  add_exit_codes(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const bool asked = error.get_exit_code() == 0;  // --help, --version
    app.exit(error);
    return static_cast<int>(asked ? ExitCode::ok : ExitCode::usage);
  }
  if (request.verb.empty()) {
    std::fputs("ternctl: say what to show, for example `ternctl status`; --help lists all\n",
               stderr);
    return static_cast<int>(ExitCode::usage);
  }
  return static_cast<int>(run(request));
}

}  // namespace
}  // namespace tern::ctl

int main(int argc, char** argv) {
  try {
    return tern::ctl::main_of(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ternctl: %s\n", error.what());
    return static_cast<int>(tern::ctl::ExitCode::failed);
  }
}
