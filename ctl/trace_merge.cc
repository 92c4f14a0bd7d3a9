#include "ctl/trace_merge.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "ctl/human.h"

namespace tern::ctl {
namespace {

using nlohmann::json;

// How far a clock is ahead of the first trace's.
struct Distance {
  double ahead_ns = 0;
  double error_ns = 0;
};

bool has_numbers(const json& object, std::initializer_list<const char*> keys) {
  return std::all_of(keys.begin(), keys.end(), [&](const char* key) {
    const auto found = object.find(key);
    return found != object.end() && found->is_number();
  });
}

Status check(const NamedTrace& trace) {
  const json& document = *trace.document;
  const auto sound = [&] {
    if (!document.is_object()) return false;
    const auto events = document.find("traceEvents"), other = document.find("otherData");
    if (events == document.end() || !events->is_array()) return false;
    if (other == document.end() || !other->is_object()) return false;
    const auto node = other->find("node_id"), clocks = other->find("clocks");
    if (node == other->end() || !node->is_string()) return false;
    if (clocks == other->end() || !clocks->is_array()) return false;
    if (!has_numbers(*other, {"steady_ns", "wall_ns"})) return false;
    return std::all_of(events->begin(), events->end(), [](const json& event) {
      if (!event.is_object() || !has_numbers(event, {"pid", "tid"})) return false;
      return !event.contains("ts") || event["ts"].is_number();
    });
  };
  if (sound()) return {};
  return fail(Errc::corrupt_data,
              fmt::format("{} is no trace that `ternctl trace stop` has written", trace.name));
}

const json& other_data(const NamedTrace& trace) { return (*trace.document)["otherData"]; }

// The clock of `to` less that of `from`, as a link between them found; the surest of several lanes.
std::optional<Distance> link_distance(const NamedTrace& from, const NamedTrace& to) {
  std::optional<Distance> best;
  const auto look = [&](const NamedTrace& here, const NamedTrace& there, double sign) {
    for (const json& clock : other_data(here)["clocks"]) {
      if (!clock.is_object() || !has_numbers(clock, {"offset_ns", "error_ns"})) continue;
      if (clock.value("node_id", json()) != other_data(there)["node_id"]) continue;
      const double error = clock["error_ns"].get<double>();
      if (!best || error < best->error_ns) {
        best = Distance{sign * clock["offset_ns"].get<double>(), error};
      }
    }
  };
  look(from, to, 1.0);
  look(to, from, -1.0);
  return best;
}

// What cannot be reached over links stays empty.
std::vector<std::optional<Distance>> link_distances(const std::vector<NamedTrace>& traces) {
  std::vector<std::optional<Distance>> known(traces.size());
  known.front() = Distance{};
  for (bool found = true; found;) {
    found = false;
    for (std::size_t from = 0; from < traces.size(); ++from) {
      for (std::size_t to = 0; known[from] && to < traces.size(); ++to) {
        const auto step = link_distance(traces[from], traces[to]);
        if (known[to] || !step) continue;
        known[to] = Distance{known[from]->ahead_ns + step->ahead_ns,
                             known[from]->error_ns + step->error_ns};
        found = true;
      }
    }
  }
  return known;
}

double calendar_distance(const NamedTrace& first, const NamedTrace& other) {
  const auto zero = [](const NamedTrace& trace) {
    const json& data = other_data(trace);
    return data["steady_ns"].get<double>() - data["wall_ns"].get<double>();
  };
  return zero(other) - zero(first);
}

}  // namespace

Result<std::vector<std::string>> merge_traces(const std::vector<NamedTrace>& traces,
                                              const std::function<void(const json& event)>& emit) {
  for (const NamedTrace& trace : traces) {
    if (auto sound = check(trace); !sound) return tl::unexpected(sound.error());
  }
  const auto distances = link_distances(traces);
  std::vector<double> ahead_us;
  std::vector<std::string> notes;
  for (std::size_t i = 0; i < traces.size(); ++i) {
    const double ns =
        distances[i] ? distances[i]->ahead_ns : calendar_distance(traces.front(), traces[i]);
    ahead_us.push_back(ns / 1e3);
    if (i == 0) continue;
    notes.push_back(distances[i]
                        ? fmt::format("{}: its clock is known to {}", traces[i].name,
                                      human_seconds(distances[i]->error_ns / 1e9))
                        : fmt::format("{}: no link tells its clock; set by the calendars of the "
                                      "nodes, which may be far apart",
                                      traces[i].name));
  }
  // Clocks begin when machines do: what happened before the first one's did must not be negative.
  double earliest_us = 0;
  for (std::size_t i = 0; i < traces.size(); ++i) {
    for (const json& event : (*traces[i].document)["traceEvents"]) {
      if (!event.contains("ts")) continue;
      earliest_us = std::min(earliest_us, event["ts"].get<double>() - ahead_us[i]);
    }
  }
  for (std::size_t i = 0; i < traces.size(); ++i) {
    for (json event : (*traces[i].document)["traceEvents"]) {
      event["pid"] = i + 1;
      if (event.contains("ts")) {
        event["ts"] = event["ts"].get<double>() - ahead_us[i] - earliest_us;
      }
      emit(event);
    }
  }
  return notes;
}

}  // namespace tern::ctl
