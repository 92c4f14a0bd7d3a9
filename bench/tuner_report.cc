#include "bench/tuner_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace tern::bench {
namespace {

// All seeds of one trace and payload.
struct Row {
  std::string trace;
  double bytes = 0.0;
  std::size_t seeds = 0;
  double regret = 0.0, worst_regret = -1.0;
  double by_pair = 0.0, by_static = 0.0, by_raw = 0.0,
         by_threelc = 0.0;  // the tuner's time by theirs, minus 1
  double window = -1.0;
  double switches = 0.0, probes = 0.0;
  std::size_t recovery = 0;
  std::uint64_t violations = 0;
  const ContestResult* first = nullptr;
};

std::vector<Row> rows_of(const std::vector<ContestResult>& results, const TunerSamples& samples) {
  std::size_t threelc = 0;
  for (std::size_t i = 0; i < samples.candidates.size(); ++i) {
    if (samples.candidates[i].candidate.recipe == "3lc:s=1") threelc = i;
  }
  std::vector<Row> rows;
  for (const ContestResult& result : results) {
    if (rows.empty() || rows.back().trace != result.trace || rows.back().bytes != result.bytes) {
      rows.emplace_back();
      rows.back().trace = result.trace;
      rows.back().bytes = result.bytes;
      rows.back().first = &result;
    }
    Row& row = rows.back();
    const double time = result.tuner_ns();
    const double threelc_ns = result.static_ns[threelc];
    ++row.seeds;
    row.regret += result.regret();
    row.worst_regret = std::max(row.worst_regret, result.regret());
    row.by_pair += time / result.pair_ns() - 1.0;
    row.by_static += time / result.best_static_ns() - 1.0;
    row.by_raw += time / result.raw_ns() - 1.0;
    row.by_threelc += threelc_ns > 0.0 ? time / threelc_ns - 1.0 : 0.0;
    row.window = std::max(row.window, result.worst_window());
    row.switches += static_cast<double>(result.switches);
    row.probes += static_cast<double>(result.probes);
    row.recovery = std::max(row.recovery, result.longest_recovery());
    row.violations += result.violations;
  }
  for (Row& row : rows) {
    const auto seeds = static_cast<double>(row.seeds);
    for (double* mean : {&row.regret, &row.by_pair, &row.by_static, &row.by_raw, &row.by_threelc,
                         &row.switches, &row.probes}) {
      *mean /= seeds;
    }
  }
  return rows;
}

std::string payload(double bytes) {
  return bytes == 4.0 * (1 << 20) ? "4 MiB" : fmt::format("{:g} MB", bytes / 1e6);
}

}  // namespace

std::string tuner_table(const std::vector<ContestResult>& results, const TunerSamples& samples) {
  std::string text =
      "| link, Gbit/s | tensor | regret | worst seed | to best pair | to best static | to raw | to "
      "3LC s=1 | "
      "worst 50 ops to raw | switches | probes | ops to recover, at most | error violations |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|---|---|\n";
  for (const Row& row : rows_of(results, samples)) {
    const std::string recovery = row.first->recovery.empty() ? "" : fmt::format("{}", row.recovery);
    text += fmt::format("| {} | {} |", row.trace, payload(row.bytes));
    for (const double part : {row.regret, row.worst_regret, row.by_pair, row.by_static, row.by_raw,
                              row.by_threelc, row.window}) {
      text += fmt::format(" {:.1f} % |", 100.0 * part);
    }
    text += fmt::format(" {:.1f} | {:.1f} | {} | {} |\n", row.switches, row.probes, recovery,
                        row.violations);
  }
  return text;
}

nlohmann::json tuner_json(const std::vector<ContestResult>& results, const TunerSamples& samples,
                          const ScenarioOptions& options) {
  nlohmann::json rows = nlohmann::json::array();
  for (const Row& row : rows_of(results, samples)) {
    nlohmann::json course = nlohmann::json::array();
    for (const OpRecord& op : row.first->ops) {
      course.push_back({op.tuner_ns, op.oracle_ns, op.raw_ns, op.first.reduce, op.first.broadcast});
    }
    rows.push_back({{"trace", row.trace},
                    {"bytes", row.bytes},
                    {"seeds", row.seeds},
                    {"regret", row.regret},
                    {"worst_regret", row.worst_regret},
                    {"to_best_pair", row.by_pair},
                    {"to_best_static", row.by_static},
                    {"to_raw", row.by_raw},
                    {"to_threelc", row.by_threelc},
                    {"worst_window_to_raw", row.window},
                    {"switches", row.switches},
                    {"probes", row.probes},
                    {"recovery_ops", row.recovery},
                    {"violations", row.violations},
                    {"course", std::move(course)}});
  }
  nlohmann::json recipes = nlohmann::json::array();
  for (const auto& one : samples.list()) recipes.push_back(one.recipe);
  return {{"level", tuner::level_name(options.level)},
          {"ops", options.ops},
          {"first_seed", options.first_seed},
          {"recipes", recipes},
          {"rows", rows}};
}

}  // namespace tern::bench
