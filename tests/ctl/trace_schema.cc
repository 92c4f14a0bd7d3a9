#include "tests/ctl/trace_schema.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>
#include <vector>

namespace tern::ctl {
namespace {

using nlohmann::json;
using Slices = std::vector<std::pair<double, double>>;

std::string slice_fault(Slices slices) {
  std::sort(slices.begin(), slices.end(), [](const auto& a, const auto& b) {
    return std::tie(a.first, b.second) < std::tie(b.first, a.second);
  });
  constexpr double kRounding = 0.002;  // microseconds, of numbers near 2^36
  std::vector<double> ends;
  for (const auto& [begin, end] : slices) {
    while (!ends.empty() && ends.back() <= begin + kRounding) ends.pop_back();
    if (!ends.empty() && end > ends.back() + kRounding) return "slices of one thread overlap";
    ends.push_back(end);
  }
  return "";
}

}  // namespace

std::string trace_fault(const json& document) {
  if (!document.is_object() || !document.contains("traceEvents")) return "no traceEvents";
  std::map<std::pair<std::int64_t, std::int64_t>, Slices> threads;
  std::map<std::tuple<std::int64_t, std::string, std::string>, double> open;
  for (const json& event : document["traceEvents"]) {
    const auto fault = [&event](const char* what) { return what + (": " + event.dump()); };
    if (!event.is_object() || !event.contains("ph") || !event["ph"].is_string()) {
      return fault("no ph");
    }
    if (!event.contains("pid") || !event["pid"].is_number_integer()) return fault("no pid");
    if (!event.contains("tid") || !event["tid"].is_number_integer()) return fault("no tid");
    if (!event.contains("name") || !event["name"].is_string()) return fault("no name");
    const std::string phase = event["ph"];
    const std::int64_t pid = event["pid"];
    if (phase == "M") {
      if (!event.contains("args") || !event["args"].contains("name")) return fault("names nothing");
      continue;
    }
    if (!event.contains("ts") || !event["ts"].is_number()) return fault("no ts");
    const double ts = event["ts"];
    if (ts < 0) return fault("before all time");
    if (phase == "X") {
      if (!event.contains("dur") || !event["dur"].is_number()) return fault("no dur");
      if (event["dur"] < 0) return fault("ends before it begins");
      threads[{pid, event["tid"]}].emplace_back(ts, ts + event["dur"].get<double>());
    } else if (phase == "b" || phase == "e") {
      if (!event.contains("cat") || !event.contains("id2")) return fault("no cat or id2");
      const auto key = std::tuple(pid, event["cat"].get<std::string>(),
                                  event["id2"].at("local").get<std::string>());
      if (phase == "b") {
        if (!open.emplace(key, ts).second) return fault("begins twice");
      } else {
        const auto begun = open.find(key);
        if (begun == open.end()) return fault("ends and has not begun");
        if (begun->second > ts) return fault("ends before it begins");
        open.erase(begun);
      }
    } else if (phase == "C") {
      const json args = event.value("args", json::object());
      if (args.empty()) return fault("counts nothing");
      for (const json& value : args) {
        if (!value.is_number()) return fault("counts what is no number");
      }
    } else if (phase == "i") {
      if (!event.contains("s")) return fault("no scope");
    } else {
      return fault("unknown ph");
    }
  }
  if (!open.empty()) return "something begins and never ends";
  for (auto& [thread, slices] : threads) {
    if (auto fault = slice_fault(slices); !fault.empty()) return fault;
  }
  return "";
}

}  // namespace tern::ctl
