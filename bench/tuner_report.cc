#include "bench/tuner_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "bench/tuner_promises.h"
#include "bench/tuner_rows.h"

namespace tern::bench {
namespace {

std::string payload(double bytes) {
  return bytes == 4.0 * (1 << 20) ? "4 MiB" : fmt::format("{:g} MB", bytes / 1e6);
}

std::string percent(double part) { return fmt::format("{:.1f} %", 100.0 * part); }

}  // namespace

std::string tuner_table(const std::vector<ContestResult>& results) {
  std::string text =
      "| level | link, Gbit/s | tensor | regret | worst seed | who knew all before | to best "
      "static "
      "| to raw | worst 50 ops to raw | who knew | switches in 50 | late after changes | probes | "
      "violations | holds |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n";
  std::string causes;
  std::size_t held = 0;
  const std::vector<TunerRow> rows = rows_of(results);
  for (const TunerRow& row : rows) {
    const std::string level(tuner::level_name(row.level));
    const std::string shortfall = row.shortfall();
    text += fmt::format("| {} | {} | {} |", level, row.trace, payload(row.bytes));
    for (const double part : {row.regret, row.worst_regret, row.informed, row.by_static, row.by_raw,
                              row.window.slower, row.window.informed}) {
      text += " " + percent(part) + " |";
    }
    text += fmt::format(" {} | {} of {} | {:.1f} | {} | {} |\n", row.most_switches, row.late,
                        row.changes, row.probes, row.violations,
                        shortfall.empty() ? "yes" : "**no: " + shortfall + "**");
    held += shortfall.empty() ? 1u : 0u;
    const std::string name = fmt::format("- `{}`, {}, {}: ", level, row.trace, payload(row.bytes));
    if (row.regret > row.aim) {
      causes += name + fmt::format("regret, {} for seed {}: {}\n", percent(row.worst_regret),
                                   row.regret_seed, row.regret_cause);
    }
    if (row.window.slower > Promises::kSlower) {
      causes += name + fmt::format("{} slower than raw for seed {} {}\n",
                                   percent(row.window.slower), row.window_seed, row.window_cause);
    }
  }
  text += fmt::format("\nAll promises hold in {} of {} rows.\n", held, rows.size());
  if (!causes.empty()) text += "\nWhat falls short, and what it loses by:\n\n" + causes;
  return text;
}

nlohmann::json tuner_json(const std::vector<ContestResult>& results,
                          const ScenarioOptions& options) {
  nlohmann::json rows = nlohmann::json::array();
  for (const TunerRow& row : rows_of(results)) {
    nlohmann::json course = nlohmann::json::array();
    for (const OpRecord& op : row.first->ops) {
      course.push_back({op.tuner_ns, op.oracle_ns, op.raw_ns, op.first.reduce, op.first.broadcast});
    }
    rows.push_back({{"level", tuner::level_name(row.level)},
                    {"trace", row.trace},
                    {"bytes", row.bytes},
                    {"seeds", row.seeds},
                    {"regret", row.regret},
                    {"aim", row.aim},
                    {"settled_regret", row.settled},
                    {"worst_regret", row.worst_regret},
                    {"informed_regret", row.informed},
                    {"to_best_static", row.by_static},
                    {"to_raw", row.by_raw},
                    {"worst_window_to_raw", row.window.slower},
                    {"informed_window_to_raw", row.window.informed},
                    {"window_cause", row.window_cause},
                    {"regret_cause", row.regret_cause},
                    {"switches", row.switches},
                    {"most_switches_in_window", row.most_switches},
                    {"changes", row.changes},
                    {"late_recoveries", row.late},
                    {"probes", row.probes},
                    {"violations", row.violations},
                    {"shortfall", row.shortfall()},
                    {"course", std::move(course)}});
  }
  nlohmann::json recipes = nlohmann::json::array();
  if (!results.empty()) recipes = results.front().recipes;
  return {{"ops", options.ops},
          {"first_seed", options.first_seed},
          {"recipes", recipes},
          {"rows", rows}};
}

}  // namespace tern::bench
