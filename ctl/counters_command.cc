#include "ctl/counters_command.h"

#include <fmt/format.h>

#include <array>
#include <ctime>
#include <nlohmann/json.hpp>

#include "counters/counters_file.h"
#include "counters/snapshot.h"

namespace tern::ctl {
namespace {

using nlohmann::json;

std::string calendar_text(std::uint64_t ns) {
  const auto seconds = static_cast<time_t>(ns / 1'000'000'000u);
  std::tm parts{};
  std::array<char, 32> text{};
  if (::gmtime_r(&seconds, &parts) == nullptr ||
      std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts) == 0) {
    return "an unknown time";
  }
  return text.data();
}

std::string note_of(const std::string& path, const counters::Snapshot& snapshot) {
  const std::string whose = fmt::format("{}: ternd {}, pid {}, started {}", path, snapshot.software,
                                        snapshot.pid, calendar_text(snapshot.started_ns));
  return whose + (snapshot.alive
                      ? ", is running"
                      : ", is dead; last sign of life " + calendar_text(snapshot.written_ns));
}

json json_of(const counters::Snapshot& snapshot) {
  json rows = json::object();
  for (const counters::Counter& counter : snapshot.counters) {
    json row{{"value", counter.value()},
             {"unit", counter.unit},
             {"help", counter.help},
             {"kind", counter.kind == counters::Kind::gauge ? "gauge" : "counter"}};
    if (counter.instances.size() > 1) row["lanes"] = counter.instances;
    rows[counter.name] = std::move(row);
  }
  return rows;
}

}  // namespace

Result<FileCounters> counters_of_file(const std::string& path) {
  const auto snapshot = counters::read_counters(path);
  if (!snapshot && snapshot.error().code == Errc::permission_denied) {
    return fail(Errc::permission_denied,
                snapshot.error().text +
                    "; it is for the daemon's user, and for its group where the setting observers "
                    "names that: use sudo");
  }
  if (!snapshot) return tl::unexpected(snapshot.error());
  return FileCounters{json_of(*snapshot), note_of(path, *snapshot)};
}

Result<FileCounters> last_counters(const Session& session, const Error& why) {
  auto file = counters_of_file(counters::path_beside(session.socket_path));
  if (file) {
    file->note = "The daemon does not answer; these are of " + file->note;
    return file;
  }
  if (file.error().code == Errc::daemon_absent) return tl::unexpected(why);
  return fail(why.code,
              why.text + "\nIts counters file cannot be read either: " + file.error().text);
}

}  // namespace tern::ctl
