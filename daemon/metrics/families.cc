#include "daemon/metrics/families.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "counters/kind_names.h"
#include "counters/turn_bounds.h"

namespace tern::daemon {
namespace {

using counters::kind_of_counter;
using counters::kTurnBounds;
using counters::kTurnThreads;
using counters::turn_sum_name;
using counters::TurnBound;
using counters::turns_name;
using nlohmann::json;
using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

// A number of a row, and the metric that it becomes; `scale` makes base units of it.
struct Metric {
  const char* field;
  const char* name;
  MetricType type;
  double scale;
  const char* help;
};

constexpr Metric kOfDaemon[] = {
    {"clients", "tern_clients", MetricType::Gauge, 1, "Connected local processes."},
    {"groups", "tern_groups", MetricType::Gauge, 1, "Groups with a rank on this node."},
    {"peers", "tern_peers", MetricType::Gauge, 1, "Other nodes that lanes are linked to."},
    {"lanes", "tern_lanes", MetricType::Gauge, 1, "Data threads."},
    {"rss_bytes", "tern_resident_memory_bytes", MetricType::Gauge, 1,
     "Resident memory of the daemon."},
    {"uptime_s", "tern_uptime_seconds", MetricType::Gauge, 1, "Time since the daemon started."},
};

constexpr Metric kBuildInfo{"info", "tern_build_info", MetricType::Gauge, 1,
                            "Always 1; the labels say what runs."};
constexpr Metric kSilentLanes{"silent", "tern_silent_lanes", MetricType::Gauge, 1,
                              "Lanes that do not answer the conductor; 0 in health."};

constexpr Metric kCertificateExpiry{
    "not_after_s", "tern_certificate_expiry_timestamp_seconds", MetricType::Gauge, 1,
    "Until when a certificate of this node, or of an authority, is valid."};

// By thread, as kTurnThreads.
constexpr Metric kOfTurns[] = {
    {"", "tern_conductor_turn_seconds", MetricType::Histogram, 1e-9,
     "How long the conductor's turns took, less what it waited for a processor."},
    {"", "tern_lane_turn_seconds", MetricType::Histogram, 1e-9,
     "How long a lane's turns took, less what it waited for a processor."},
};

constexpr Metric kOfKinds{"value", "tern_ops_of_kind_total", MetricType::Counter, 1,
                          "Operations that succeeded, by kind, per lane they ran on."};

constexpr Metric kOfLinks[] = {
    {"bytes_sent", "tern_link_sent_bytes_total", MetricType::Counter, 1, "Bytes sent on a link."},
    {"bytes_received", "tern_link_received_bytes_total", MetricType::Counter, 1,
     "Bytes received on a link."},
    {"frames_sent", "tern_link_sent_frames_total", MetricType::Counter, 1,
     "Frames sent on a link."},
    {"frames_received", "tern_link_received_frames_total", MetricType::Counter, 1,
     "Frames received on a link."},
    {"resumes", "tern_link_resumes_total", MetricType::Counter, 1,
     "Times that a link was opened again after its connection broke."},
    {"replayed_frames", "tern_link_replayed_frames_total", MetricType::Counter, 1,
     "Frames sent again after a link was opened again."},
    {"unacked_frames", "tern_link_unacked_frames", MetricType::Gauge, 1,
     "Frames that the peer has not acknowledged."},
    {"round_trip_us", "tern_link_round_trip_seconds", MetricType::Gauge, 1e-6,
     "Time from a frame to its acknowledgement."},
};

std::string text_of(const json& row, const char* field) {
  const auto found = row.is_object() ? row.find(field) : row.end();
  return found != row.end() && found->is_string() ? found->get<std::string>() : std::string();
}

const char* type_name(MetricType type) noexcept {
  if (type == MetricType::Histogram) return "histogram";
  return type == MetricType::Counter ? "counter" : "gauge";
}

MetricFamily family_of(const Metric& metric) { return {metric.name, metric.help, metric.type, {}}; }

// The row's number with these labels, if the row has it. Requires: no other row has the same.
void add_row(MetricFamily& family, const Metric& metric, const json& row,
             std::vector<ClientMetric::Label> labels) {
  const auto found = row.is_object() ? row.find(metric.field) : row.end();
  if (found == row.end() || !found->is_number()) return;
  ClientMetric value;
  value.label = std::move(labels);
  value.counter.value = value.gauge.value =
      found->get<double>() * metric.scale;  // the type says which counts
  family.metric.push_back(std::move(value));
}

// Of counters.
double value_of(const json& counter) {
  const auto found = counter.is_object() ? counter.find("value") : counter.end();
  return found != counter.end() && found->is_number() ? found->get<double>() : 0.0;
}

// Whether the counter is part of a histogram.
bool is_of_turns(const std::string& name) {
  return std::any_of(kTurnThreads.begin(), kTurnThreads.end(), [&name](std::string_view thread) {
    return name == turn_sum_name(thread) ||
           std::any_of(kTurnBounds.begin(), kTurnBounds.end(),
                       [&](const TurnBound& bound) { return name == turns_name(thread, bound); });
  });
}

// The lanes' values of a counter, or the one value that it has.
std::vector<double> values_of(const json& counters, const std::string& name) {
  const auto counter = counters.find(name);
  if (counter == counters.end()) return {};
  const auto lanes = counter->find("lanes");
  if (lanes == counter->end()) return {value_of(*counter)};
  return lanes->get<std::vector<double>>();
}

// One series for each lane.
MetricFamily turn_family(std::string_view thread, const Metric& metric, const json& counters) {
  MetricFamily family = family_of(metric);
  const std::vector<double> sums = values_of(counters, turn_sum_name(thread));
  family.metric.resize(sums.size());
  for (std::size_t i = 0; i < sums.size(); ++i) {
    if (thread == "lane") family.metric[i].label = {{"lane", std::to_string(i)}};
    family.metric[i].histogram.sample_sum = sums[i] * metric.scale;
  }
  for (const TurnBound& bound : kTurnBounds) {
    const std::vector<double> turns = values_of(counters, turns_name(thread, bound));
    const bool is_last = &bound == &kTurnBounds.back();
    for (std::size_t i = 0; i < std::min(turns.size(), family.metric.size()); ++i) {
      ClientMetric::Histogram& histogram = family.metric[i].histogram;
      histogram.sample_count += static_cast<std::uint64_t>(turns[i]);
      histogram.bucket.push_back(
          {histogram.sample_count, is_last ? std::numeric_limits<double>::infinity()
                                           : static_cast<double>(bound.up_to_ns) * metric.scale});
    }
  }
  return family;
}

// One series for each kind and lane.
MetricFamily kind_family(const json& counters) {
  MetricFamily family = family_of(kOfKinds);
  for (const auto& [name, counter] : counters.items()) {
    const auto kind = kind_of_counter(name);
    if (!kind) continue;
    const std::vector<double> values = values_of(counters, name);
    for (std::size_t lane = 0; lane < values.size(); ++lane) {
      add_row(family, kOfKinds, {{kOfKinds.field, values[lane]}},
              {{"kind", std::string(*kind)}, {"lane", std::to_string(lane)}});
    }
  }
  return family;
}

void add_family(std::vector<MetricFamily>& families, MetricFamily family) {
  if (!family.metric.empty()) families.push_back(std::move(family));
}

}  // namespace

std::vector<MetricText> metric_texts() {
  std::vector<MetricText> texts;
  const auto add = [&texts](const Metric& metric) {
    texts.push_back({metric.name, type_name(metric.type), metric.help});
  };
  add(kBuildInfo);
  for (const Metric& metric : kOfDaemon) add(metric);
  add(kSilentLanes);
  add(kCertificateExpiry);
  for (const Metric& metric : kOfLinks) add(metric);
  for (const Metric& metric : kOfTurns) add(metric);
  add(kOfKinds);
  return texts;
}

std::string metric_name(const std::string& counter, const std::string& unit, bool only_grows) {
  if (kind_of_counter(counter)) return kOfKinds.name;
  if (is_of_turns(counter)) return kOfTurns[counter.starts_with(kTurnThreads[0]) ? 0 : 1].name;
  constexpr std::string_view kNs = "_ns";
  const bool nanoseconds = unit == "ns" && counter.ends_with(kNs);
  return "tern_" +
         (nanoseconds ? counter.substr(0, counter.size() - kNs.size()) + "_seconds" : counter) +
         (only_grows ? "_total" : "");
}

std::vector<MetricFamily> metric_families(const json& status, const json& links,
                                          const json& counters) {
  std::vector<MetricFamily> families;
  MetricFamily build = family_of(kBuildInfo);
  add_row(build, kBuildInfo, {{"info", 1}},
          {{"version", text_of(status, "version")},
           {"kernel_target", text_of(status, "kernel_target")},
           {"transport", text_of(status, "transport")}});
  add_family(families, std::move(build));
  for (const Metric& metric : kOfDaemon) {
    MetricFamily family = family_of(metric);
    add_row(family, metric, status, {});
    add_family(families, std::move(family));
  }
  if (const auto lanes = status.find("silent_lanes"); lanes != status.end() && lanes->is_array()) {
    MetricFamily family = family_of(kSilentLanes);
    add_row(family, kSilentLanes, {{"silent", lanes->size()}}, {});
    add_family(families, std::move(family));
  }
  MetricFamily certificates = family_of(kCertificateExpiry);
  const auto rows = status.find("certificates");
  for (const json& row : rows != status.end() ? *rows : json::array()) {
    add_row(certificates, kCertificateExpiry, row,
            {{"kind", text_of(row, "kind")}, {"subject", text_of(row, "subject")}});
  }
  add_family(families, std::move(certificates));
  for (const Metric& metric : kOfLinks) {
    MetricFamily family = family_of(metric);
    for (const json& link : links) {
      add_row(family, metric, link,
              {{"node", text_of(link, "node_id")},
               {"address", text_of(link, "address")},
               {"lane", text_of(link, "lane")}});
    }
    add_family(families, std::move(family));
  }
  for (std::size_t i = 0; i < kTurnThreads.size(); ++i) {
    add_family(families, turn_family(kTurnThreads[i], kOfTurns[i], counters));
  }
  add_family(families, kind_family(counters));
  for (const auto& [name, counter] : counters.items()) {
    if (is_of_turns(name) || kind_of_counter(name)) continue;
    const std::string unit = text_of(counter, "unit"), help = text_of(counter, "help") + ".";
    const bool only_grows = text_of(counter, "kind") != "gauge";
    const std::string full_name = metric_name(name, unit, only_grows);
    const Metric metric{"value", full_name.c_str(),
                        only_grows ? MetricType::Counter : MetricType::Gauge,
                        unit == "ns" ? 1e-9 : 1.0, help.c_str()};
    MetricFamily family = family_of(metric);
    add_row(family, metric, counter, {});
    add_family(families, std::move(family));
  }
  return families;
}

}  // namespace tern::daemon
