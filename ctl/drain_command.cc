#include "ctl/drain_command.h"

#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "ctl/fields.h"

namespace tern::ctl {
namespace {

using nlohmann::json;

constexpr std::chrono::milliseconds kBetweenLooks{200};

void print(const Session& session, const json& report) {
  const bool is_on = report.is_object() && report.value("draining", false);
  const std::string text = session.as_json ? json_text(report, -1)
                           : is_on         ? "the daemon " + text_field(report, "text")
                                           : "the daemon takes new jobs";
  fmt::print("{}\n", text);
  std::fflush(stdout);
}

json question(const DrainOptions& options) {
  if (options.status) return json::object();
  if (options.if_idle) return {{"if_idle", true}};
  if (options.cancel) return {{"cancel", true}};
  return {{"seconds", options.deadline_s}};
}

ExitCode say_ended(const Session& session) {
  fmt::print("{}\n", session.as_json ? R"({"ended":true})" : "the daemon has ended");
  return ExitCode::ok;
}

// What is said changes with those who are waited for, not with the time.
std::string who_is_waited_for(const json& report) {
  const auto found = report.find("waits_for");
  return found == report.end() ? "" : json_text(*found, -1);
}

}  // namespace

ExitCode drain(const Session& session, const DrainOptions& options) {
  auto report = session.ask("drain", question(options));
  if (!report) return explain(report.error());
  print(session, *report);
  if (options.cancel || options.no_wait || options.status) return ExitCode::ok;
  if (options.if_idle) {
    const bool ends = report->is_object() && report->value("draining", false);
    return ends && report->value("idle", false) ? ExitCode::ok : ExitCode::failed;
  }
  const std::string drained = text_field(*report, "node_id");
  for (std::string last = who_is_waited_for(*report);;) {
    std::this_thread::sleep_for(kBetweenLooks);
    report = session.ask("drain");
    if (!report) {
      // Nobody listens any more, or the daemon went while it was asked.
      const Errc code = report.error().code;
      if (code != Errc::daemon_absent && code != Errc::io_error && code != Errc::protocol_error) {
        return explain(report.error());
      }
      return say_ended(session);
    }
    // systemd may have started another one at once, for a client. An old daemon says no id.
    const bool is_another = report->is_object() && text_field(*report, "node_id") != drained;
    if (is_another) return say_ended(session);
    if (!report->is_object() || !report->value("draining", false)) {
      fmt::print(stderr, "ternctl: somebody else has cancelled the drain\n");
      return ExitCode::failed;
    }
    if (std::string now = who_is_waited_for(*report); now != last) {
      print(session, *report);
      last = std::move(now);
    }
  }
}

}  // namespace tern::ctl
