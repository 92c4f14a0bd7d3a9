#pragma once

// What the daemon reports to ternctl, as Prometheus names and counts it: base units, `_total` on
// what only grows.

#include <prometheus/metric_family.h>

#include <nlohmann/json_fwd.hpp>
#include <vector>

namespace tern::daemon {

// From the results of `status`, `peers` and `counters`. A field that is missing is left out.
std::vector<prometheus::MetricFamily> metric_families(const nlohmann::json& status,
                                                      const nlohmann::json& peers,
                                                      const nlohmann::json& counters);

}  // namespace tern::daemon
