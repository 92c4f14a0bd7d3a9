#include "bench/tuner_rows.h"

#include <algorithm>
#include <string_view>

namespace tern::bench {
namespace {

void add(TunerRow& row, const ContestResult& result) {
  const Promises promises(result);
  const double time = result.tuner_ns();
  ++row.seeds;
  row.regret += result.regret();
  row.informed += result.informed_regret();
  row.settled += result.regret_from(Promises::kWindow);
  row.aim = result.aim;
  if (result.regret() > row.worst_regret) {
    row.worst_regret = result.regret();
    row.regret_seed = result.seed;
    row.regret_cause = promises.cause_of_regret();
  }
  row.by_static += time / result.best_static_ns() - 1.0;
  row.by_raw += time / result.raw_ns() - 1.0;
  const double known = std::max(row.window.informed, promises.worst_window().informed);
  if (promises.worst_window().slower > row.window.slower) {
    row.window = promises.worst_window();
    row.window_seed = result.seed;
    row.window_cause = promises.cause_of_window();
  }
  row.window.informed = known;
  row.switches += static_cast<double>(result.switches);
  row.probes += static_cast<double>(result.probes);
  row.most_switches = std::max(row.most_switches, promises.most_switches());
  row.changes += promises.recoveries().size();
  row.late += promises.late_recoveries();
  row.violations += result.violations;
}

}  // namespace

std::string TunerRow::shortfall() const {
  std::string text;
  const auto expect = [&text](bool kept, std::string_view promise) {
    if (kept) return;
    text += text.empty() ? "" : ", ";
    text += promise;
  };
  expect(regret <= aim, "regret");
  expect(window.slower <= Promises::kSlower, "raw");
  expect(late == 0, "late");
  expect(most_switches <= 1, "switches");
  expect(violations == 0, "errors");
  return text;
}

std::vector<TunerRow> rows_of(const std::vector<ContestResult>& results) {
  std::vector<TunerRow> rows;
  for (const ContestResult& result : results) {
    const bool same = !rows.empty() && rows.back().trace == result.trace &&
                      rows.back().bytes == result.bytes && rows.back().level == result.level;
    if (!same) {
      TunerRow& row = rows.emplace_back();
      row.trace = result.trace;
      row.level = result.level;
      row.bytes = result.bytes;
      row.first = &result;
    }
    add(rows.back(), result);
  }
  for (TunerRow& row : rows) {
    const auto seeds = static_cast<double>(row.seeds);
    for (double* mean : {&row.regret, &row.settled, &row.informed, &row.by_static, &row.by_raw,
                         &row.switches, &row.probes}) {
      *mean /= seeds;
    }
  }
  return rows;
}

}  // namespace tern::bench
