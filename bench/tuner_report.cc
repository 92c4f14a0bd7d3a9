#include "bench/tuner_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "bench/tuner_promises.h"

namespace tern::bench {
namespace {

// All seeds of one level, trace and payload.
struct Row {
  std::string trace;
  tuner::Level level = tuner::Level::balanced;
  double bytes = 0.0;
  std::size_t seeds = 0;
  double regret = 0.0, worst_regret = -1.0, informed = 0.0;
  double settled = 0.0;  // the regret without the first ops, of which nothing is promised
  double by_static = 0.0, by_raw = 0.0;  // the tuner's time by theirs, minus 1
  Window window;
  std::uint64_t window_seed = 0, regret_seed = 0;
  std::string window_cause, regret_cause;
  double aim = 0.0;
  double switches = 0.0, probes = 0.0;
  std::size_t most_switches = 0;
  std::size_t changes = 0, late = 0;  // and those after which the best recipe came too late
  std::uint64_t violations = 0;
  const ContestResult* first = nullptr;

  void add(const ContestResult& result);
  bool holds() const {
    return regret <= aim && window.slower <= Promises::kSlower && late == 0 && most_switches <= 1 &&
           violations == 0;
  }
};

void Row::add(const ContestResult& result) {
  const Promises promises(result);
  const double time = result.tuner_ns();
  ++seeds;
  regret += result.regret();
  informed += result.informed_regret();
  settled += result.regret_from(Promises::kWindow);
  aim = result.aim;
  if (result.regret() > worst_regret) {
    worst_regret = result.regret();
    regret_seed = result.seed;
    regret_cause = promises.cause_of_regret();
  }
  by_static += time / result.best_static_ns() - 1.0;
  by_raw += time / result.raw_ns() - 1.0;
  const double known = std::max(window.informed, promises.worst_window().informed);
  if (promises.worst_window().slower > window.slower) {
    window = promises.worst_window();
    window_seed = result.seed;
    window_cause = promises.cause_of_window();
  }
  window.informed = known;
  switches += static_cast<double>(result.switches);
  probes += static_cast<double>(result.probes);
  most_switches = std::max(most_switches, promises.most_switches());
  changes += promises.recoveries().size();
  late += promises.late_recoveries();
  violations += result.violations;
}

std::vector<Row> rows_of(const std::vector<ContestResult>& results) {
  std::vector<Row> rows;
  for (const ContestResult& result : results) {
    const bool same = !rows.empty() && rows.back().trace == result.trace &&
                      rows.back().bytes == result.bytes && rows.back().level == result.level;
    if (!same) {
      Row& row = rows.emplace_back();
      row.trace = result.trace;
      row.level = result.level;
      row.bytes = result.bytes;
      row.first = &result;
    }
    rows.back().add(result);
  }
  for (Row& row : rows) {
    const auto seeds = static_cast<double>(row.seeds);
    for (double* mean : {&row.regret, &row.settled, &row.informed, &row.by_static, &row.by_raw,
                         &row.switches, &row.probes}) {
      *mean /= seeds;
    }
  }
  return rows;
}

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
  const std::vector<Row> rows = rows_of(results);
  for (const Row& row : rows) {
    const std::string level(tuner::level_name(row.level));
    text += fmt::format("| {} | {} | {} |", level, row.trace, payload(row.bytes));
    for (const double part : {row.regret, row.worst_regret, row.informed, row.by_static, row.by_raw,
                              row.window.slower, row.window.informed}) {
      text += " " + percent(part) + " |";
    }
    text += fmt::format(" {} | {} of {} | {:.1f} | {} | {} |\n", row.most_switches, row.late,
                        row.changes, row.probes, row.violations, row.holds() ? "yes" : "**no**");
    held += row.holds() ? 1u : 0u;
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
  for (const Row& row : rows_of(results)) {
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
                    {"holds", row.holds()},
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
