#include <fmt/format.h>

#include "daemon/metrics/counter_table.h"
#include "daemon/metrics/families.h"
#include "daemon/operator/operator_view.h"

namespace tern::daemon {
namespace {

std::string counter_row(const counters::CounterText& text) {
  const bool only_grows = text.kind == counters::Kind::counter;
  return fmt::format(
      "| `{}` | {} | {} | `{}` | {} |\n", text.name, only_grows ? "counter" : "gauge", text.unit,
      metric_name(std::string(text.name), std::string(text.unit), only_grows), text.help);
}

}  // namespace

std::string counters_markdown() {
  constexpr std::string_view kHead =
      "\n| name | kind | unit | metric | meaning |\n|---|---|---|---|---|\n";
  std::string text =
      "# Counters, metrics and events\n\n"
      "This page is printed by `ternd --print-counters-markdown`; a test compares the two.\n\n"
      "`ternctl counters` shows the counters. They are in the\n"
      "[counters file](counters-file.md), and with `metrics_listen` they become metrics for\n"
      "Prometheus. A counter only grows, from the start of the daemon; a gauge goes up and down.\n"
      "The unit 1 is a plain number. Metrics give times in seconds.\n\n"
      "## Counters of the conductor\n";
  text += kHead;
  for (const auto& row : conductor_counters()) text += counter_row(row.text);
  text +=
      "\n## Counters of lanes\n\nOne value for each lane; `ternctl counters` shows their sum.\n";
  text += kHead;
  for (const auto& row : lane_counters()) text += counter_row(row.text);
  for (const auto& row : kind_counters()) text += counter_row(row);
  text += "\n## Counters of the tuner\n";
  text += kHead;
  for (const auto& row : tuner_counters()) text += counter_row(row);
  text +=
      "\n## Other metrics\n\nThe unit is in the name: bytes, seconds, or a number of things. Those "
      "of "
      "links have the labels\n`node`, `address` and `lane`, those of certificates `kind` and "
      "`subject`.\n\n| metric | kind | meaning "
      "|\n|---|---|---|\n";
  for (const MetricText& metric : metric_texts()) {
    text += fmt::format("| `{}` | {} | {} |\n", metric.name, metric.type, metric.help);
  }
  text +=
      "\n## Events of a trace\n\nWhat `ternctl trace` writes; times are in microseconds in the "
      "file. "
      "`bytes` is the size of the\nblock, `bytes_raw` what it would be uncompressed.\n\n| event | "
      "meaning |\n|---|---|\n";
  for (const TraceKindText& kind : trace_kinds()) {
    text += fmt::format("| `{}` | {} |\n", kind.name, kind.help);
  }
  text +=
      "| `recipe` | a tensor is sent by another recipe from now on, with the tuner's reason; "
      "`trial`: "
      "to compare, not to stay |\n"
      "| `device` | what a client says of a device: the mean time of encoding and decoding since "
      "it said so before, and the memory that it holds and has pinned |\n";
  return text;
}

}  // namespace tern::daemon
