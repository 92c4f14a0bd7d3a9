#pragma once

// What the daemon reports to ternctl, as Prometheus names and counts it: base units, `_total` on
// what only grows.

#include <prometheus/metric_family.h>

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace tern::daemon {

// One line of documentation.
struct MetricText {
  std::string name, type, help;
};
// Of all but the counters, whose own table documents them.
std::vector<MetricText> metric_texts();
// The metric that a counter becomes: `tern_` before it, base units, and `_total` if it only grows;
// or the family or histogram that it is part of.
std::string metric_name(const std::string& counter, const std::string& unit, bool only_grows);

// From the results of `status`, LinkSeries and `counters`. A field that is missing is left out.
std::vector<prometheus::MetricFamily> metric_families(const nlohmann::json& status,
                                                      const nlohmann::json& links,
                                                      const nlohmann::json& counters);

}  // namespace tern::daemon
