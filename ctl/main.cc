#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "ctl/control_client.h"
#include "ctl/doctor.h"
#include "ctl/exit_code.h"
#include "ctl/health.h"
#include "ctl/pki_commands.h"
#include "ctl/views.h"

namespace tern::ctl {
namespace {

using nlohmann::json;

// sizeof(sockaddr_un::sun_path) less the zero.
constexpr std::size_t kMaxSocketPathBytes = 107;
constexpr double kMaxSeconds = 86'400;
constexpr std::string_view kHealth = "health";
constexpr std::string_view kDoctor = "doctor";

struct Request {
  std::string verb;
  std::string argument;
  std::string socket_path = "/run/tern/control.sock";
  double timeout_s = 5;
  double watch_s = 0;  // 0: once
  double patience_s = 60;
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

ExitCode explain(const Error& error) {
  fmt::print(stderr, "ternctl: {}\n", error.text);
  return exit_code_of(error.code);
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

Result<json> ask(const Request& request, std::string_view verb) {
  const auto timeout =
      std::chrono::milliseconds(static_cast<std::int64_t>(request.timeout_s * 1e3));
  json args = json::object();
  if (const Verb* const asked = find_verb(verb); asked != nullptr && !request.argument.empty()) {
    args[std::string(asked->argument.name)] = request.argument;
  }
  return ask_daemon(request.socket_path, verb, args, timeout);
}

// The answers in the order of the verbs, or the first error.
Result<std::vector<json>> ask_all(const Request& request,
                                  std::initializer_list<std::string_view> verbs) {
  std::vector<json> answers;
  for (const std::string_view verb : verbs) {
    auto answer = ask(request, verb);
    if (!answer) return tl::unexpected(std::move(answer.error()));
    answers.push_back(std::move(*answer));
  }
  return answers;
}

std::string json_text(const json& result, int indent) {
  return result.dump(indent, ' ', false, json::error_handler_t::replace);
}

// One line whatever happens, because that is what monitoring shows.
ExitCode show_health(const Request& request) {
  const auto answers = ask_all(request, {"status", "peers", "groups"});
  Health health;
  ExitCode code = ExitCode::ok;
  if (answers) {
    health = judge_health((*answers)[0], (*answers)[1], (*answers)[2], request.patience_s);
    if (!health.well) code = ExitCode::unwell;
  } else {
    const std::string& text = answers.error().text;
    health.line = "FAULT: " + text.substr(0, text.find('\n'));
    code = exit_code_of(answers.error().code);
  }
  const std::string line =
      request.as_json ? json_text({{"well", health.well}, {"line", health.line}}, -1) : health.line;
  fmt::print("{}\n", line);
  std::fflush(stdout);
  return code;
}

ExitCode show_findings(const Request& request) {
  const auto answers = ask_all(request, {"status", "host", "peers", "counters"});
  if (!answers) return explain(answers.error());
  const auto findings =
      examine(read_machine(), (*answers)[0], (*answers)[1], (*answers)[2], (*answers)[3]);
  const std::string text =
      request.as_json ? json_text(findings_json(findings), 2) + '\n' : render_findings(findings);
  fmt::print("{}", text);
  const bool fault = std::any_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.grade == Grade::fault;
  });
  return fault ? ExitCode::unwell : ExitCode::ok;
}

ExitCode show_answer(const Request& request) {
  const auto result = ask(request, request.verb);
  if (!result) return explain(result.error());
  print(request, *find_verb(request.verb), *result);
  return ExitCode::ok;
}

ExitCode run(const Request& request) {
  while (true) {
    const bool health = request.verb == kHealth;
    const ExitCode code = health                    ? show_health(request)
                          : request.verb == kDoctor ? show_findings(request)
                                                    : show_answer(request);
    if (std::ferror(stdout) != 0) return ExitCode::failed;
    // Watching for health is watching for the fault to come and go.
    if (request.watch_s <= 0 || (code != ExitCode::ok && !health)) return code;
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
      "4 access refused, 5 daemon and ternctl are of different versions, 6 no answer in time,\n"
      "7 health or doctor found a fault.");
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
  app.add_subcommand(std::string(kDoctor), "What makes this node slow or deaf, and the remedy")
      ->callback([&request] { request.verb = kDoctor; });
  app.add_subcommand(std::string(kHealth), "One line and an exit status, for monitoring")
      ->callback([&request] { request.verb = kHealth; })
      ->add_option("--patience", request.patience_s,
                   "Seconds that an operation may wait for ranks before it is a fault")
      ->check(seconds_from(0.001))
      ->capture_default_str()
      ->type_name("SECONDS");
  PkiAction pki_action;
  add_pki_commands(app, pki_action);
  add_exit_codes(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const bool asked = error.get_exit_code() == 0;  // --help, --version
    app.exit(error);
    return static_cast<int>(asked ? ExitCode::ok : ExitCode::usage);
  }
  if (pki_action) {
    const auto made = pki_action();
    if (!made) return static_cast<int>(explain(made.error()));
    fmt::print("{}", *made);
    return static_cast<int>(ExitCode::ok);
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
