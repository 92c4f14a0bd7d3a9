#include "ctl/trace_events.h"

#include <fmt/format.h>

#include "base/printable.h"

namespace tern::ctl {
namespace {

using nlohmann::json;

constexpr std::uint64_t kTunerTid = 1000;  // below the lanes, which are 1, 2, ...

// Fields of the daemon's answer, which may be of another version.
const json& field(const json& object, std::string_view key) {
  static const json kNone;
  const auto found = object.is_object() ? object.find(key) : object.end();
  return object.is_object() && found != object.end() ? *found : kNone;
}
std::string text_at(const json& object, std::string_view key) {
  const json& value = field(object, key);
  return value.is_string() ? printable(value.get<std::string>()) : std::string();
}
std::uint64_t count_at(const json& object, std::string_view key) {
  const json& value = field(object, key);
  const bool is_count =
      value.is_number_unsigned() || (value.is_number_integer() && value.get<std::int64_t>() >= 0);
  return is_count ? value.get<std::uint64_t>() : 0;
}

struct Total {
  std::uint64_t count, ns;
};

// Nothing where nothing was measured between the two; a client may also have begun anew.
void add_mean(json& values, const char* name, const Total& before, const Total& after) {
  if (after.count <= before.count || after.ns < before.ns) return;
  values[name] = static_cast<double>(after.ns - before.ns) /
                 static_cast<double>(after.count - before.count) / 1e6;
}

}  // namespace

TraceEvents::TraceEvents(const json& summary, Emit emit)
    : summary_(summary), emit_(std::move(emit)) {
  pid_ = std::max<std::uint64_t>(1, count_at(summary, "pid"));
  for (const json& group : field(summary, "groups")) {
    groups_[count_at(group, "number")] = {text_at(group, "uid"), text_at(group, "job"),
                                          field(group, "nodes"), field(group, "tensors")};
  }
}

json TraceEvents::base(std::string_view phase, std::uint64_t tid, double ns) const {
  return {{"ph", phase}, {"pid", pid_}, {"tid", tid}, {"ts", ns / 1e3}};
}

void TraceEvents::add_name(std::string_view what, std::uint64_t tid, const std::string& name) {
  emit_({{"ph", "M"}, {"pid", pid_}, {"tid", tid}, {"name", what}, {"args", {{"name", name}}}});
}

void TraceEvents::add_node() {
  add_name("process_name", 0, "ternd " + text_at(summary_, "node_id").substr(0, 8));
  for (std::uint64_t lane = 0; lane < count_at(summary_, "lanes"); ++lane) {
    add_name("thread_name", lane + 1, fmt::format("lane {}", lane));
  }
  add_name("thread_name", kTunerTid, "tuner");
  for (const json& change : field(summary_, "changes")) {
    json event = base("i", kTunerTid, static_cast<double>(count_at(change, "at_ns")));
    event["s"] = "p";
    event["cat"] = "recipe";
    event["name"] =
        fmt::format("recipe of {}: {}", text_at(change, "tensor"), text_at(change, "to"));
    event["args"] = {{"job", text_at(change, "job")},
                     {"group", text_at(change, "group")},
                     {"tensor", text_at(change, "tensor")},
                     {"from", text_at(change, "from")},
                     {"to", text_at(change, "to")},
                     {"reason", text_at(change, "reason")},
                     {"trial", field(change, "trial") == true}};
    emit_(event);
  }
  add_devices();
}

void TraceEvents::add_counter(double ns, const std::string& name, json values) {
  if (values.empty()) return;
  json event = base("C", 0, ns);
  event["name"] = name;
  event["args"] = std::move(values);
  emit_(event);
}

// Rows have totals, so that the time of an operation is known from the second row on.
void TraceEvents::add_devices() {
  std::map<std::string, DeviceTotals> before;
  for (const json& row : field(summary_, "devices")) {
    const std::string name = fmt::format("device {} of client {} ({})", count_at(row, "device"),
                                         count_at(row, "client"), text_at(row, "job"));
    const DeviceTotals now{count_at(row, "encodes"), count_at(row, "encode_ns"),
                           count_at(row, "decodes"), count_at(row, "decode_ns")};
    const auto at = static_cast<double>(count_at(row, "at_ns"));
    json times = json::object();
    if (const auto known = before.find(name); known != before.end()) {
      const DeviceTotals& last = known->second;
      add_mean(times, "encode", {last.encodes, last.encode_ns}, {now.encodes, now.encode_ns});
      add_mean(times, "decode", {last.decodes, last.decode_ns}, {now.decodes, now.decode_ns});
    }
    before[name] = now;
    add_counter(at, name + ": ms", std::move(times));
    add_counter(
        at, name + ": bytes",
        {{"held", count_at(row, "device_bytes")}, {"pinned", count_at(row, "pinned_bytes")}});
  }
}

// Whose it is.
json TraceEvents::describe(const json& event) const {
  json args{{"sequence", count_at(event, "sequence")}, {"bytes", count_at(event, "bytes")}};
  if (event.contains("bytes_raw")) args["bytes_raw"] = count_at(event, "bytes_raw");
  if (event.contains("result")) args["result"] = text_at(event, "result");
  if (event.contains("codec")) args["codec"] = text_at(event, "codec");
  const std::uint64_t tensor = count_at(event, "tensor");
  args["tensor"] = fmt::format("#{}", count_at(event, "sequence"));
  const auto found = groups_.find(count_at(event, "group"));
  if (found != groups_.end()) {
    args["group"] = found->second.uid;
    args["job"] = found->second.job;
    if (tensor != 0) args["tensor"] = text_at(found->second.tensors, std::to_string(tensor));
  }
  if (event.contains("chunk")) {
    args["chunk"] = count_at(event, "chunk");
    const std::uint64_t node = count_at(event, "node");
    const bool known = found != groups_.end() && found->second.nodes.is_array() &&
                       node < found->second.nodes.size() && found->second.nodes[node].is_string();
    if (known) args["node"] = printable(found->second.nodes[node].get<std::string>());
  }
  return args;
}

void TraceEvents::add_event(std::uint64_t lane, const json& event) {
  const std::string kind = text_at(event, "kind");
  const auto begin = static_cast<double>(count_at(event, "begin_ns"));
  const double end = std::max(begin, static_cast<double>(count_at(event, "end_ns")));
  if (kind.empty() || begin == 0) return;
  json args = describe(event);
  const std::string tensor = args["tensor"];
  if (kind == "encode" || kind == "decode") {
    json slice = base("X", lane + 1, begin);
    slice["dur"] = (end - begin) / 1e3;
    slice["cat"] = "codec";
    slice["name"] = fmt::format("{} {}", kind, text_at(event, "codec"));
    slice["args"] = std::move(args);
    return emit_(slice);
  }
  // What overlaps on a lane: a pair for each, held together by an id of this process.
  const std::string name = kind == "op" ? fmt::format("{} {}", text_at(event, "op"), tensor) : kind;
  json first = base("b", lane + 1, begin);
  first["cat"] = kind;
  first["name"] = name;
  first["id2"] = {{"local", fmt::format("0x{:x}", next_id_++)}};
  json last = first;
  last["ph"] = "e";
  last["ts"] = end / 1e3;
  first["args"] = std::move(args);
  emit_(first);
  emit_(last);
}

void TraceEvents::add_lane(std::uint64_t lane, const json& page) {
  const json& events = field(page, "events");
  const std::uint64_t dropped = count_at(page, "dropped");
  dropped_ += dropped;
  if (dropped > 0 && events.is_array() && !events.empty()) {
    json note = base("i", lane + 1, static_cast<double>(count_at(events.front(), "begin_ns")));
    note["s"] = "t";
    note["cat"] = "trace";
    note["name"] = fmt::format("{} older events were dropped", dropped);
    emit_(note);
  }
  for (const json& event : events) add_event(lane, event);
}

json TraceEvents::other_data() const {
  return {{"node_id", text_at(summary_, "node_id")},
          {"software", text_at(summary_, "software")},
          {"steady_ns", count_at(summary_, "steady_ns")},
          {"wall_ns", count_at(summary_, "wall_ns")},
          {"clocks", field(summary_, "clocks")},
          {"dropped_events", dropped_},
          {"has_unnamed_tensors", field(summary_, "has_unnamed") == true},
          {"dropped_recipe_changes", count_at(summary_, "changes_dropped")},
          {"dropped_device_reports", count_at(summary_, "devices_dropped")}};
}

}  // namespace tern::ctl
