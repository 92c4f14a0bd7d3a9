#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "ctl/counters_command.h"
#include "ctl/doctor.h"
#include "ctl/drain_command.h"
#include "ctl/dump_command.h"
#include "ctl/exit_code.h"
#include "ctl/fields.h"
#include "ctl/health.h"
#include "ctl/pki_commands.h"
#include "ctl/session.h"
#include "ctl/top_command.h"
#include "ctl/trace_command.h"
#include "ctl/views.h"

namespace tern::ctl {
namespace {

using nlohmann::json;

// sizeof(sockaddr_un::sun_path) less the zero.
constexpr std::size_t kMaxSocketPathBytes = 107;
constexpr double kMaxSeconds = 86'400;
constexpr std::string_view kHealth = "health";
constexpr std::string_view kTraceFile = "tern-trace.json";
constexpr std::string_view kCounters = "counters";

struct Request {
  Session session;
  std::string verb;
  std::string argument;
  bool has_argument = false;
  double watch_s = 0;       // 0: once
  bool is_question = true;  // asked again it changes nothing, and comes to an end by itself
  double patience_s = 60;
  std::string counters_file;  // empty: the daemon is asked
  std::string output;
  std::vector<std::string> traces;
  TopOptions top;
  DrainOptions drain;
  bool once = false;
  // Of a verb that is more than a question; empty: it is one.
  std::function<ExitCode(const Request&)> run;
};

void print(const Request& request, const Verb& verb, const json& result) {
  // Watched, each answer is one line, for programs that read as it comes.
  const std::string text =
      !request.session.as_json
          ? verb.render(result)
          : result.dump(request.watch_s > 0 ? -1 : 2, ' ', false, json::error_handler_t::replace) +
                '\n';
  const bool clear =
      request.watch_s > 0 && !request.session.as_json && ::isatty(STDOUT_FILENO) == 1;
  if (clear) std::fputs("\x1b[H\x1b[2J", stdout);
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

Result<json> ask(const Request& request, std::string_view verb) {
  json args = json::object();
  if (const Verb* const asked = find_verb(verb); asked != nullptr && request.has_argument) {
    args[std::string(asked->argument.name)] = request.argument;
  }
  return request.session.ask(verb, args);
}

// `status` and the others in their order, null where this user is not shown the answer; or the
// first error.
Result<std::vector<json>> ask_all(const Request& request,
                                  std::initializer_list<std::string_view> others) {
  std::vector<json> answers;
  auto status = request.session.ask("status");
  if (!status) return tl::unexpected(std::move(status.error()));
  answers.push_back(std::move(*status));
  for (const std::string_view verb : others) {
    auto answer = request.session.ask_for_shown(verb);
    if (!answer) return tl::unexpected(std::move(answer.error()));
    answers.push_back(std::move(*answer));
  }
  return answers;
}

// One line whatever happens, because that is what monitoring shows.
ExitCode show_health(const Request& request) {
  const auto answers = ask_all(request, {"peers", "groups"});
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
  const std::string line = request.session.as_json
                               ? json_text({{"well", health.well}, {"line", health.line}}, -1)
                               : health.line;
  fmt::print("{}\n", line);
  std::fflush(stdout);
  return code;
}

ExitCode show_findings(const Request& request) {
  const auto answers = ask_all(request, {"host", "peers", "counters"});
  // The longest answer there is, which the rest can do without.
  const json clients = answers ? request.session.ask_for_shown("clients").value_or(json()) : json();
  const ExitCode answered = answers ? ExitCode::ok : explain(answers.error());
  // Without a daemon the machine can still be looked at.
  const auto findings =
      answers ? examine(read_machine(text_field((*answers)[0], "advertise")),
                        {(*answers)[0], (*answers)[1], (*answers)[2], (*answers)[3], clients})
              : examine_machine(read_machine(""));
  const std::string text = request.session.as_json ? json_text(findings_json(findings), 2) + '\n'
                                                   : render_findings(findings);
  fmt::print("{}", text);
  const bool fault = std::any_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.grade == Grade::fault;
  });
  return answers && fault ? ExitCode::unwell : answered;
}

ExitCode show_answer(const Request& request) {
  const auto result = ask(request, request.verb);
  if (!result) return explain(result.error());
  print(request, *find_verb(request.verb), *result);
  return ExitCode::ok;
}

// Of the daemon, or of its file when it does not answer.
ExitCode show_counters(const Request& request) {
  const Verb& verb = *find_verb(kCounters);
  Result<FileCounters> file = FileCounters{};
  if (request.counters_file.empty()) {
    const auto result = ask(request, kCounters);
    if (result) print(request, verb, *result);
    if (result) return ExitCode::ok;
    const Errc code = result.error().code;
    if (code != Errc::daemon_absent && code != Errc::timeout && code != Errc::protocol_error) {
      return explain(result.error());
    }
    file = last_counters(request.session, result.error());
  } else {
    file = counters_of_file(request.counters_file);
  }
  if (!file) return explain(file.error());
  fmt::print(stderr, "{}\n", file->note);
  print(request, verb, file->counters);
  return ExitCode::ok;
}

// Whether all that was printed has gone out; else it is said why not.
bool is_written() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return true;
  fmt::print(stderr, "ternctl: the output cannot be written: {}\n", std::strerror(errno));
  return false;
}

ExitCode run(const Request& request) {
  while (true) {
    const bool health = request.verb == kHealth;
    const ExitCode code = request.run ? request.run(request) : show_answer(request);
    if (!is_written()) return ExitCode::failed;
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

void set_run(Request& request, std::string_view verb, ExitCode (*run)(const Request&)) {
  request.verb = verb;
  request.run = run;
}

// Of a verb that changes something, or that goes on until it is ended.
void set_act(Request& request, std::string_view verb, ExitCode (*run)(const Request&)) {
  set_run(request, verb, run);
  request.is_question = false;
}

void add_top(CLI::App& app, Request& request) {
  CLI::App* const top =
      app.add_subcommand("top", "What jobs, tensors, peers and lanes do at present, as rates");
  top->add_option("view", request.top.view, "jobs, tensors, peers or lanes")
      ->type_name("VIEW")
      ->capture_default_str();
  top->add_option("--sort", request.top.sort, "Column, by its name in --json")->type_name("KEY");
  top->add_flag("--reverse", request.top.reversed, "Sort the other way round");
  top->add_option("--interval", request.top.interval_s, "Seconds between two looks")
      ->check(seconds_from(0.01))
      ->capture_default_str()
      ->type_name("SECONDS");
  top->add_option("--batch", request.top.batch, "Print so many frames as plain text and end")
      ->check(CLI::Range(1, 1'000'000))
      ->type_name("N");
  top->add_flag("--once", request.once, "As --batch 1");
  top->callback([&request] {
    if (request.once) request.top.batch = 1;
    set_act(request, "top",
            [](const Request& asked) { return show_top(asked.session, asked.top); });
  });
}

void add_trace(CLI::App& app, Request& request) {
  CLI::App* const trace =
      app.add_subcommand("trace", "Records what lanes do, as a trace that Perfetto opens");
  trace->require_subcommand(1)->fallthrough();
  trace->add_subcommand("start", "Begins to record; the newest events of each lane are kept")
      ->callback([&request] {
        set_act(request, "trace", [](const Request& asked) { return start_trace(asked.session); });
      });
  trace->add_subcommand("status", "Whether a trace is being recorded")->callback([&request] {
    set_run(request, "trace",
            [](const Request& asked) { return show_trace_status(asked.session); });
  });
  CLI::App* const stop = trace->add_subcommand("stop", "Ends it, and writes what was recorded");
  stop->add_option("--output", request.output, "File to write; - is the standard output")
      ->type_name("FILE")
      ->default_str(std::string(kTraceFile));
  stop->callback([&request] {
    set_act(request, "trace", [](const Request& asked) {
      return stop_trace(asked.session,
                        asked.output.empty() ? std::string(kTraceFile) : asked.output);
    });
  });
  CLI::App* const merge =
      trace->add_subcommand("merge", "Makes one trace of those of several nodes, on one clock");
  merge->add_option("traces", request.traces, "Traces; the clock is that of the first")
      ->required()
      ->type_name("FILE");
  merge->add_option("--output", request.output, "File to write; - is the standard output")
      ->required()
      ->type_name("FILE");
  merge->callback([&request] {
    set_act(request, "trace",
            [](const Request& asked) { return merge_trace_files(asked.traces, asked.output); });
  });
}

void add_dump(CLI::App& app, Request& request) {
  CLI::App* const dump = app.add_subcommand(
      "dump", "One archive to attach to a bug report: no tensor contents, no keys");
  dump->add_option("--output", request.output,
                   "File to write, else tern-dump-HOST-TIME.tar.gz here")
      ->type_name("FILE");
  dump->callback([&request] {
    set_act(request, "dump",
            [](const Request& asked) { return write_dump(asked.session, asked.output); });
  });
}

void add_drain(CLI::App& app, Request& request) {
  CLI::App* const command = app.add_subcommand(
      "drain", "Ends the daemon when the jobs that run have gone; new ones are refused");
  command
      ->add_option("--deadline", request.drain.deadline_s,
                   "Seconds after which it ends all the same, and what runs fails")
      ->check(seconds_from(0))
      ->capture_default_str()
      ->type_name("SECONDS");
  command->add_flag("--no-wait", request.drain.no_wait, "Return at once");
  CLI::Option* const cancel =
      command->add_flag("--cancel", request.drain.cancel, "Take new jobs again");
  CLI::Option* const status =
      command->add_flag("--status", request.drain.status, "Ask, and change nothing");
  command
      ->add_flag("--if-idle", request.drain.if_idle,
                 "End a daemon that nobody needs; status 1: it is needed, and goes on as it was")
      ->excludes(cancel, status);
  status->excludes(cancel);
  command->callback([&request] {
    set_act(request, "drain",
            [](const Request& asked) { return drain(asked.session, asked.drain); });
    request.is_question = request.drain.status;
  });
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
  app.add_option("--socket", request.session.socket_path, "Control socket of the daemon")
      ->envname("TERN_CONTROL_SOCKET")
      ->check(CLI::Validator(
          [](const std::string& path) {
            const bool fits = !path.empty() && path.size() <= kMaxSocketPathBytes;
            return std::string(fits ? "" : "the path of a socket has 1 to 107 bytes");
          },
          ""))
      ->capture_default_str()
      ->type_name("PATH");
  app.add_option("--timeout", request.session.timeout_s, "Seconds to wait for the daemon")
      ->check(seconds_from(0.001))
      ->capture_default_str()
      ->type_name("SECONDS");
  app.add_option("--watch", request.watch_s, "Ask again every so many seconds, until interrupted")
      ->check(seconds_from(0.01))
      ->type_name("SECONDS");
  app.add_flag("--json", request.session.as_json, "Print the daemon's result as JSON");
  app.require_subcommand(0, 1);  // without one we say it better
  app.fallthrough();
  for (const Verb& verb : verbs()) {
    CLI::App* const command = app.add_subcommand(std::string(verb.name), std::string(verb.help));
    command->callback([&request, &verb] { request.verb = verb.name; });
    if (verb.argument.name.empty()) continue;
    const CLI::Option* const argument =
        command
            ->add_option(std::string(verb.argument.name), request.argument,
                         std::string(verb.argument.help))
            ->type_name(std::string(verb.argument.placeholder))
            ->required(verb.argument.required);
    command->callback([&request, &verb, argument] {
      request.verb = verb.name;
      request.has_argument = argument->count() > 0;                           // an empty one too
      request.is_question = !request.has_argument || verb.argument.required;  // RULES are set
    });
  }
  app.get_subcommand(std::string(kCounters))
      ->add_option("--file", request.counters_file,
                   "Read them from this file instead, also of a daemon that has died")
      ->type_name("PATH");
  app.get_subcommand(std::string(kCounters))->callback([&request] {
    set_run(request, kCounters, show_counters);
  });
  app.add_subcommand("doctor", "What makes this node slow or deaf, and the remedy")
      ->callback([&request] { set_run(request, "doctor", show_findings); });
  add_top(app, request);
  add_trace(app, request);
  add_dump(app, request);
  add_drain(app, request);
  app.add_subcommand(std::string(kHealth), "One line and an exit status, for monitoring")
      ->callback([&request] { set_run(request, kHealth, show_health); })
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
    return static_cast<int>(is_written() ? ExitCode::ok : ExitCode::failed);
  }
  if (request.verb.empty()) {
    std::fputs("ternctl: say what to show, for example `ternctl status`; --help lists all\n",
               stderr);
    return static_cast<int>(ExitCode::usage);
  }
  if (request.watch_s > 0 && !request.is_question) {
    fmt::print(stderr,
               "ternctl: --watch asks again and again, and `{}` is more than a question{}\n",
               request.verb, request.verb == "top" ? "; it has --interval" : "");
    return static_cast<int>(ExitCode::usage);
  }
  return static_cast<int>(run(request));
}

}  // namespace
}  // namespace tern::ctl

int main(int argc, char** argv) {
  // What cannot be written is an error like others, with what to do about it.
  std::signal(SIGXFSZ, SIG_IGN);
  std::signal(SIGPIPE, SIG_IGN);
  try {
    return tern::ctl::main_of(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ternctl: %s\n", error.what());
    return static_cast<int>(tern::ctl::ExitCode::failed);
  }
}
