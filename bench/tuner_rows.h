#pragma once

// What the runs of a level on a link come to, all seeds together, and what of the promises they
// keep.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/tuner_contest.h"
#include "bench/tuner_promises.h"

namespace tern::bench {

// All seeds of one level, trace and payload: the mean over them, or the worst of them where that is
// what counts.
struct TunerRow {
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

  // Empty, or what of the promises is not kept: of regret, raw, late, switches, errors, in this
  // order and with commas.
  std::string shortfall() const;
};

// Of results that come seed by seed; they must outlive the rows.
std::vector<TunerRow> rows_of(const std::vector<ContestResult>& results);

}  // namespace tern::bench
