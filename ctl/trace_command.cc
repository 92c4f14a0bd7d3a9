#include "ctl/trace_command.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "ctl/fields.h"
#include "ctl/output_file.h"
#include "ctl/trace_events.h"
#include "ctl/trace_merge.h"

namespace tern::ctl {
namespace {

using nlohmann::json;

// More than sixteen lanes can have recorded.
constexpr std::uintmax_t kMaxTraceBytes = std::uintmax_t{1} << 30;

// The document around the events, which are written as they come.
class TraceWriter {
 public:
  explicit TraceWriter(OutputFile file) : file_(std::move(file)) {
    file_.write("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[");
  }
  void add(const json& event) {
    file_.write(count_++ == 0 ? "\n" : ",\n");
    file_.write(json_text(event, -1));
  }
  Status finish(const json& other_data) {
    file_.write("\n],\"otherData\":" + json_text(other_data, -1) + "}\n");
    return file_.finish();
  }
  std::size_t count() const noexcept { return count_; }

 private:
  OutputFile file_;
  std::size_t count_ = 0;
};

Status read_lanes(const Session& session, const json& summary, TraceEvents& events) {
  const std::uint64_t lanes = summary.value("lanes", std::uint64_t{0});
  for (std::uint64_t lane = 0; lane < lanes; ++lane) {
    std::uint64_t from = 0;
    for (bool more = true; more;) {
      const auto page = session.ask("trace", {{"action", "read"}, {"lane", lane}, {"from", from}});
      if (!page) return tl::unexpected(page.error());
      const auto next = page->find("next"), has_more = page->find("more");
      const bool sound = page->is_object() && next != page->end() && next->is_number_unsigned() &&
                         has_more != page->end() && has_more->is_boolean();
      if (!sound || next->get<std::uint64_t>() < from) {
        return fail(Errc::protocol_error, "the daemon's page of events cannot be read");
      }
      events.add_lane(lane, *page);
      // A page without progress would be asked for again for ever.
      more = has_more->get<bool>() && next->get<std::uint64_t>() > from;
      from = next->get<std::uint64_t>();
    }
  }
  return {};
}

Result<json> read_trace(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return fail_errno(Errc::io_error, path, errno);
  if (static_cast<std::uintmax_t>(info.st_size) > kMaxTraceBytes) {
    return fail(Errc::corrupt_data, path + " is too large for a trace of ternctl's");
  }
  std::ifstream file(path);
  if (!file) return fail_errno(Errc::io_error, path, errno);
  json document = json::parse(file, nullptr, false);
  if (document.is_discarded()) return fail(Errc::corrupt_data, path + " is not JSON");
  return document;
}

}  // namespace

ExitCode start_trace(const Session& session) {
  const auto summary = session.ask("trace", {{"action", "start"}});
  if (!summary) return explain(summary.error());
  fmt::print("Recording the last {} events of each of {} lanes; `ternctl trace stop` ends it.\n",
             count_field(*summary, "lane_events"), count_field(*summary, "lanes"));
  return ExitCode::ok;
}

ExitCode show_trace_status(const Session& session) {
  const auto summary = session.ask("trace", {{"action", "status"}});
  if (!summary) return explain(summary.error());
  fmt::print("{}\n", session.as_json ? json_text(*summary, 2)
                                     : "Recording: " + text_field(*summary, "state"));
  return ExitCode::ok;
}

ExitCode stop_trace(const Session& session, const std::string& path) {
  // Before the recording ends: who cannot write loses nothing.
  auto file = OutputFile::create(path);
  if (!file) {
    return explain({file.error().code,
                    file.error().text + ".\nNothing was stopped; --output names another place."});
  }
  const auto summary = session.ask("trace", {{"action", "stop"}});
  if (!summary) return explain(summary.error());
  if (!summary->is_object()) return explain({Errc::protocol_error, "the answer cannot be read"});
  TraceWriter writer(std::move(*file));
  TraceEvents events(*summary, [&writer](const json& event) { writer.add(event); });
  events.add_node();
  Status status = read_lanes(session, *summary, events);
  if (status) status = writer.finish(events.other_data());
  if (!status) {
    return explain({status.error().code,
                    status.error().text +
                        ".\nThe daemon keeps the trace until the next start: `ternctl trace stop "
                        "--output ELSEWHERE` fetches it again."});
  }
  fmt::print(stderr, "{} events in {}{}; https://ui.perfetto.dev opens it.\n", writer.count(), path,
             events.dropped() == 0 ? std::string()
                                   : fmt::format(", {} older ones were dropped", events.dropped()));
  return ExitCode::ok;
}

ExitCode merge_trace_files(const std::vector<std::string>& paths, const std::string& output) {
  std::vector<json> documents;
  for (const std::string& path : paths) {
    auto document = read_trace(path);
    if (!document) return explain(document.error());
    documents.push_back(std::move(*document));
  }
  std::vector<NamedTrace> traces;
  for (std::size_t i = 0; i < paths.size(); ++i) traces.push_back({paths[i], &documents[i]});
  auto file = OutputFile::create(output);
  if (!file) return explain(file.error());
  TraceWriter writer(std::move(*file));
  const auto notes = merge_traces(traces, [&writer](const json& event) { writer.add(event); });
  if (!notes) return explain(notes.error());
  json nodes = json::array();
  for (const json& document : documents) nodes.push_back(document["otherData"]);
  if (auto status = writer.finish({{"nodes", nodes}, {"clocks", *notes}}); !status) {
    return explain(status.error());
  }
  for (const std::string& note : *notes) fmt::print(stderr, "{}\n", note);
  return ExitCode::ok;
}

}  // namespace tern::ctl
