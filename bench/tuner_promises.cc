#include "bench/tuner_promises.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace tern::bench {
namespace {

constexpr double kAsGoodAsBest = 1.05;
constexpr double kGreatChange = 2.0;
constexpr std::size_t kAfterGreatChange = 3;
constexpr std::size_t kAfterChange = 10;

}  // namespace

Promises::Promises(const ContestResult& result) : result_(result) {
  find_worst_window();
  find_recoveries();
  count_switches();
}

bool Promises::changes_in(std::size_t begin, std::size_t end) const {
  return std::any_of(result_.changes.begin(), result_.changes.end(),
                     [&](const Change& one) { return one.op >= begin && one.op < end; });
}

// Of each change the three dearest ops until the next one are taken off.
std::vector<double> Promises::losses(double OpRecord::*time) const {
  const auto& ops = result_.ops;
  std::vector<double> result;
  result.reserve(ops.size());
  for (const OpRecord& op : ops) result.push_back(op.*time - op.raw_ns);
  for (std::size_t i = 0; i < result_.changes.size(); ++i) {
    const std::size_t begin = result_.changes[i].op;
    const std::size_t next =
        i + 1 < result_.changes.size() ? result_.changes[i + 1].op : result.size();
    for (std::size_t taken = 0; taken < kCostOfChange; ++taken) {
      double& dearest = *std::max_element(
          result.begin() + static_cast<std::ptrdiff_t>(begin),
          result.begin() + static_cast<std::ptrdiff_t>(std::min(next, begin + kWindow)));
      dearest = std::min(dearest, 0.0);
    }
  }
  return result;
}

void Promises::find_worst_window() {
  const std::vector<double> own = losses(&OpRecord::tuner_ns);
  const std::vector<double> informed = losses(&OpRecord::informed_ns);
  double own_sum = 0.0;
  double informed_sum = 0.0;
  double raw = 0.0;
  for (std::size_t i = kWindow; i < own.size(); ++i) {
    own_sum += own[i];
    informed_sum += informed[i];
    raw += result_.ops[i].raw_ns;
    if (i + 1 < 2 * kWindow) continue;
    const std::size_t first = i + 1 - kWindow;
    if (own_sum / raw > worst_.slower) {
      worst_.first = first;
      worst_.slower = own_sum / raw;
    }
    worst_.informed = std::max(worst_.informed, informed_sum / raw);
    own_sum -= own[first];
    informed_sum -= informed[first];
    raw -= result_.ops[first].raw_ns;
  }
}

void Promises::find_recoveries() {
  const auto& ops = result_.ops;
  for (std::size_t i = 0; i < result_.changes.size(); ++i) {
    const auto& [change, factor] = result_.changes[i];
    const std::size_t end = i + 1 < result_.changes.size() ? result_.changes[i + 1].op : ops.size();
    if (change < kWindow) continue;
    std::size_t op = change;
    while (op < end && ops[op].tuner_ns > kAsGoodAsBest * ops[op].oracle_ns) ++op;
    const std::size_t allowed = factor >= kGreatChange ? kAfterGreatChange : kAfterChange;
    // Where the next change comes first, nothing was promised yet.
    if (op == end && op - change <= allowed) continue;
    recoveries_.push_back({change, op - change, allowed});
  }
}

std::size_t Promises::late_recoveries() const {
  return static_cast<std::size_t>(
      std::count_if(recoveries_.begin(), recoveries_.end(),
                    [](const Recovery& one) { return one.ops > one.allowed; }));
}

void Promises::count_switches() {
  const auto& ops = result_.ops;
  std::vector<std::size_t> switches;  // trials apart
  Sending kept = ops.front().first;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (ops[i].trial) continue;
    // What is allowed has changed.
    if (i > 0 && ops[i].alarm != ops[i - 1].alarm) {
      kept = ops[i].first;
      kept.probe_chunks = 0;
    }
    Sending now = ops[i].first;
    now.probe_chunks = 0;
    if (now != kept) switches.push_back(i);
    kept = now;
  }
  for (std::size_t i = 0; i < switches.size(); ++i) {
    if (switches[i] < kWindow) continue;
    std::size_t count = 0;
    while (i + count < switches.size() && switches[i + count] < switches[i] + kWindow) ++count;
    // The answer to a change may come some ops after it.
    if (changes_in(switches[i] - std::min(switches[i], kAfterChange), switches[i] + kWindow)) {
      continue;
    }
    most_switches_ = std::max(most_switches_, count);
  }
}

std::string Promises::kind_of(const OpRecord& op) const {
  if (op.trial) return "by a trial";
  if (op.first.probe_chunks > 0) return "with a probe";
  const auto name = [this](const Sending& one) {
    const std::string& reduce = result_.recipes[one.reduce];
    const std::string& broadcast = result_.recipes[one.broadcast];
    return "`" + (one.reduce == one.broadcast ? reduce : reduce + " -> " + broadcast) + "`";
  };
  std::string text = "by " + name(op.first) + " where " + name(op.best) + " is best";
  if (op.alarm != tuner::Alarm::none) text += " and " + std::string(tuner::alarm_text(op.alarm));
  return text;
}

std::string Promises::cause(std::size_t first, std::size_t end, double OpRecord::*time) const {
  struct Part {
    double ns = 0.0;
    std::size_t ops = 0;
  };
  std::map<std::string, Part> parts;
  double all_ns = 0.0;
  for (std::size_t i = first; i < end; ++i) {
    const OpRecord& op = result_.ops[i];
    all_ns += op.*time;
    if (op.tuner_ns <= op.*time) continue;
    Part& part = parts[kind_of(op)];
    part.ns += op.tuner_ns - op.*time;
    ++part.ops;
  }
  std::vector<std::pair<std::string, Part>> sorted(parts.begin(), parts.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.second.ns > b.second.ns; });
  sorted.resize(std::min<std::size_t>(3, sorted.size()));
  std::string text;
  for (const auto& [kind, part] : sorted) {
    text += fmt::format("{}{:.1f} % in {} ops {}", text.empty() ? "" : ", ",
                        100.0 * part.ns / all_ns, part.ops, kind);
  }
  return text;
}

std::string Promises::cause_of_window() const {
  const std::size_t end = std::min(worst_.first + kWindow, result_.ops.size());
  return fmt::format("from op {}: ", worst_.first) + cause(worst_.first, end, &OpRecord::raw_ns);
}

std::string Promises::cause_of_regret() const {
  return cause(0, result_.ops.size(), &OpRecord::oracle_ns);
}

}  // namespace tern::bench
