#include "bench/tuner_contest.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "bench/tuner_informed.h"
#include "bench/tuner_node.h"

namespace tern::bench {
namespace {

using tuner::CandidateIndex;

constexpr double kNormJump = 8.0;

// By the truth, whatever the tuner has measured until now. It is what one encoding leaves out, and
// what is owed in the long run if every encoding leaves out so much.
std::vector<bool> allowed_by(const TunerWorld& world, tuner::Level level) {
  const tuner::Bounds bounds = tuner::bounds_of(level);
  std::vector<bool> allowed;
  for (const RecordedCandidate& one : world.samples().candidates) {
    const double loss =
        std::max_element(one.samples.begin(), one.samples.end(), [](const auto& a, const auto& b) {
          return a.loss < b.loss;
        })->loss;
    const bool within = loss <= bounds.loss && std::sqrt(loss / (1.0 - loss)) <= bounds.residual;
    allowed.push_back(one.candidate.lossless || within);
  }
  return allowed;
}

// The least of the times of pairs that are allowed, and whose it is.
Sending best_of(const std::vector<double>& times, const std::vector<bool>& allowed) {
  const std::size_t count = allowed.size();
  Sending best;
  for (std::size_t i = 0; i < times.size(); ++i) {
    if (!allowed[i / count] || !allowed[i % count]) continue;
    if (times[i] >= times[best.reduce * count + best.broadcast]) continue;
    best = {static_cast<CandidateIndex>(i / count), static_cast<CandidateIndex>(i % count), 0};
  }
  return best;
}

double best_single(const std::vector<double>& times, const std::vector<bool>& allowed) {
  double best = times[0];
  for (std::size_t i = 0; i < allowed.size(); ++i) {
    if (allowed[i]) best = std::min(best, times[i * allowed.size() + i]);
  }
  return best;
}

Change change_at(const Trace& trace, std::size_t op) {
  const WorldState& before = trace.steps[op - 1];
  const WorldState& now = trace.steps[op];
  return {op, std::max({now.gbit / before.gbit, before.gbit / now.gbit, now.load / before.load,
                        before.load / now.load})};
}

class Contest {
 public:
  Contest(TunerWorld& world, const Trace& trace, const ContestSetting& setting)
      : world_(world),
        trace_(trace),
        setting_(setting),
        draws_(setting.seed),
        nodes_{TunerNode(world, {setting.level, setting.settings, setting.instruments, 0}),
               TunerNode(world, {setting.level, setting.settings, setting.instruments, 1})},
        allowed_(allowed_by(world, setting.level)),
        informed_(allowed_) {
    result_.trace = trace.name;
    result_.level = setting.level;
    result_.bytes = world.bytes();
    result_.seed = setting.seed;
    result_.aim = trace.regret;
    for (const auto& one : world.samples().candidates) {
      result_.recipes.push_back(one.candidate.recipe);
    }
    for (const std::size_t op : trace.changes) result_.changes.push_back(change_at(trace, op));
    result_.static_ns.assign(allowed_.size(), 0.0);
  }

  ContestResult run() {
    for (TunerNode& node : nodes_) node.calibrate(draws_);
    for (std::size_t op = 0; op < trace_.steps.size(); ++op) step(op);
    result_.switches = nodes_[0].policy().switches();
    result_.alarms = nodes_[0].policy().guard().alarms();
    // In hindsight, the best of those who know.
    const std::vector<double>& informed = informed_.best();
    for (std::size_t op = 0; op < result_.ops.size(); ++op) {
      result_.ops[op].informed_ns = informed[op];
    }
    return std::move(result_);
  }

 private:
  void step(std::size_t op) {
    const auto& jumps = setting_.norm_jumps;
    if (std::find(jumps.begin(), jumps.end(), op) != jumps.end()) norm_ *= kNormJump;
    const tuner::Choice lead = nodes_[0].decide();
    const std::array<tuner::Choice, 2> choices = {lead, nodes_[1].follow(lead)};
    const std::array<Sending, 2> sending = {sending_of(choices[0]), sending_of(choices[1])};
    record(op, sending, lead.trial);
    const Noise noise{draws_.noise(), draws_.noise(), draws_.noise()};
    const WorldState& state = trace_.steps[op];
    const PipelineOutcome outcome = world_.run(state, op, sending, noise);
    const std::array<double, 2> inbound = {nodes_[1].delivered(), nodes_[0].delivered()};
    if (choices[0].probe_chunks > 0) ++result_.probes;
    for (std::size_t i = 0; i < 2; ++i) {
      if (nodes_[i].loses_too_much(choices[i], op)) ++result_.violations;
      nodes_[i].observe(
          {op, choices[i], choices[1 - i], state, outcome.ns, outcome.nodes[i], inbound[i], norm_},
          draws_);
    }
  }

  void record(std::size_t op, const std::array<Sending, 2>& sending, bool trial) {
    const WorldState& state = trace_.steps[op];
    const std::vector<double>& times = world_.pair_times(state, op);
    OpRecord record;
    record.first = sending[0];
    record.trial = trial;
    record.alarm = nodes_[0].policy().guard().alarm();
    record.tuner_ns = world_.expected_ns(state, op, sending);
    record.best = best_of(times, allowed_);
    record.oracle_ns = times[record.best.reduce * allowed_.size() + record.best.broadcast];
    record.single_ns = best_single(times, allowed_);
    record.raw_ns = times[0];
    result_.ops.push_back(record);
    informed_.see(times);
    for (std::size_t i = 0; i < allowed_.size(); ++i) {
      if (allowed_[i]) result_.static_ns[i] += times[i * allowed_.size() + i];
    }
  }

  TunerWorld& world_;
  const Trace& trace_;
  const ContestSetting& setting_;
  Draws draws_;
  std::array<TunerNode, 2> nodes_;
  std::vector<bool> allowed_;
  InformedPolicies informed_;
  double norm_ = 1.0;
  ContestResult result_;
};

double total(const std::vector<OpRecord>& ops, double OpRecord::*time) {
  double sum = 0.0;
  for (const OpRecord& op : ops) sum += op.*time;
  return sum;
}

}  // namespace

ContestResult run_contest(TunerWorld& world, const Trace& trace, const ContestSetting& setting) {
  return Contest(world, trace, setting).run();
}

double ContestResult::tuner_ns() const { return total(ops, &OpRecord::tuner_ns); }
double ContestResult::oracle_ns() const { return total(ops, &OpRecord::oracle_ns); }
double ContestResult::raw_ns() const { return total(ops, &OpRecord::raw_ns); }
double ContestResult::regret_from(std::size_t first) const {
  double own = 0.0;
  double oracle = 0.0;
  for (std::size_t op = first; op < ops.size(); ++op) {
    own += ops[op].tuner_ns;
    oracle += ops[op].oracle_ns;
  }
  return own / oracle - 1.0;
}

double ContestResult::informed_regret() const {
  return total(ops, &OpRecord::informed_ns) / oracle_ns() - 1.0;
}

double ContestResult::best_static_ns() const {
  double best = 0.0;
  for (const double ns : static_ns) {
    if (ns > 0.0 && (best == 0.0 || ns < best)) best = ns;
  }
  return best;
}

}  // namespace tern::bench
