#include "bench/tuner_contest.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace tern::bench {
namespace {

using tuner::CandidateIndex;

constexpr double kNoise = 0.1;
constexpr double kCalibrationError = 0.3;
constexpr double kRecovered = 1.1;     // by the time of the oracle
constexpr std::uint32_t kTrain = 3;    // blocks right behind another that show a link's rate
constexpr double kShadowShare = 0.01;  // of the time, for measurements in the shadow
constexpr double kNormJump = 8.0;
constexpr tuner::TensorKey kTensor = 1;

// Normal within 2.4 deviations of 10 %, the same on every platform.
class Noises {
 public:
  explicit Noises(std::uint64_t seed) : engine_(seed) {}
  double uniform() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }
  double factor() {
    const double sum = uniform() + uniform() + uniform() + uniform();
    return 1.0 + std::clamp((sum - 2.0) * std::sqrt(3.0), -2.4, 2.4) * kNoise;
  }

 private:
  std::mt19937_64 engine_;
};

// An op as a node lives through it.
struct LivedOp {
  std::size_t number;
  const tuner::Choice& choice;
  const tuner::Choice& other;  // the other node's
  const WorldState& state;
  double ns;
  const NodeOutcome& outcome;
  double inbound;  // bytes per second that come from the other node, as that one says
  double norm;     // of the gradient
};

// A node: its tuner, and what the daemon would measure for it.
class Node {
 public:
  Node(TunerWorld& world, const ContestSetting& setting, std::string peer)
      : world_(world), peer_(std::move(peer)), tuner_(world.samples().list(), setting.settings) {
    tuner::TensorInfo info;
    info.name = "layer1.weight";
    info.shape.bytes = static_cast<std::uint64_t>(world.bytes());
    info.shape.chunk_bytes = static_cast<std::uint64_t>(world.samples().chunk_bytes);
    info.level = setting.level;
    info.peers = {peer_};
    tuner_.add_tensor(kTensor, info);
    unmeasured_ = tuner_.candidates().size() - 1;
  }

  void calibrate(Noises& noises) {
    for (std::size_t i = 1; i < tuner_.candidates().size(); ++i) {
      const auto off = [&] { return 1.0 + kCalibrationError * (2.0 * noises.uniform() - 1.0); };
      tuner::SampleMeasurement sample = shadow(static_cast<CandidateIndex>(i), 0, noises);
      sample.encode_ns *= off();
      sample.decode_ns *= off();
      tuner_.calibrate(sample);
    }
  }

  tuner::Choice decide() { return tuner_.decide(kTensor); }
  // As the leading node sends, if this one may. What is said of it is said in the announcement.
  tuner::Choice follow(const tuner::Choice& lead) {
    tuner::Choice choice = decide();
    led_ = policy().allowed(lead.broadcast);
    if (!led_) return choice;
    choice.broadcast = lead.broadcast;
    choice.reduce.assign(1, lead.broadcast);
    choice.trial = lead.trial;
    return choice;
  }
  const tuner::TensorPolicy& policy() const { return tuner_.policy(kTensor); }
  double delivered() const { return window_.mean(); }

  // The recipe's true loss at this op, against what was allowed when it was chosen.
  bool loses_too_much(const tuner::Choice& choice, std::size_t op) const {
    const double bound = policy().guard().bounds().loss;
    return loss(choice.broadcast, op) > bound || loss(choice.reduce.front(), op) > bound;
  }

  void observe(const LivedOp& op, Noises& noises) {
    const auto& [number, choice, other, state, ns, outcome, inbound, norm] = op;
    observe_rate(state, outcome, noises);
    tuner_.observe_peer(peer_, inbound, world_.round_trip_ns() * noises.factor());
    tuner_.observe_lane({outcome.busy_ns, outcome.codec_ns,
                         static_cast<std::uint64_t>(outcome.wire_bytes), outcome.blocks});
    tuner::OpMeasurement measured;
    measured.op.choice = choice;
    measured.op.led = led_;
    measured.op.alike = other.broadcast == choice.broadcast && other.reduce == choice.reduce;
    measured.op.ns = ns;
    // The residual is what this op leaves of the gradient and of what was owed before.
    const double input = norm * norm * noises.factor();
    residual_ = loss(choice.reduce.front(), number) * (residual_ + input);
    measured.op.error = {{input, residual_, 1}, {}, false};
    measured.encoded_bytes = static_cast<std::uint64_t>(outcome.contribution_bytes);
    measured.encode_ns = outcome.contribution_ns;
    tuner_.observe_op(kTensor, measured);
    // A busy machine has no core for the shadow.
    if (state.load == 1.0) measure_in_shadow(number, ns, noises);
  }

 private:
  double loss(CandidateIndex candidate, std::size_t op) const {
    return tuner_.candidates()[candidate].lossless ? 0.0 : world_.shadow(candidate, op).loss;
  }

  tuner::SampleMeasurement shadow(CandidateIndex candidate, std::size_t op, Noises& noises) const {
    const CodecSample truth = world_.shadow(candidate, op);
    const double bytes = world_.samples().chunk_bytes;
    tuner::SampleMeasurement sample;
    sample.candidate = candidate;
    sample.bytes = static_cast<std::uint64_t>(bytes);
    sample.block_bytes = static_cast<std::uint64_t>(bytes * truth.wire);
    sample.encode_ns = bytes * truth.encode_ns * noises.factor();
    sample.decode_ns = bytes * truth.decode_ns * noises.factor();
    sample.loss = truth.loss;
    return sample;
  }

  void observe_rate(const WorldState& state, const NodeOutcome& outcome, Noises& noises) {
    const bool limited = outcome.longest_train < kTrain;
    const double rate = (limited ? outcome.lower_bound : state.gbit * 1e9 / 8.0) * noises.factor();
    window_.observe(rate, limited);
    tuner_.observe_rate(peer_, rate, limited);
  }

  // One candidate after the other, at leisure; at first as many as the op leaves time for.
  void measure_in_shadow(std::size_t op, double ns, Noises& noises) {
    shadow_ns_ += unmeasured_ > 0 ? ns : kShadowShare * ns;
    while (shadow_ns_ > 0.0) {
      turn_ = turn_ % (tuner_.candidates().size() - 1) + 1;
      const auto sample = shadow(static_cast<CandidateIndex>(turn_), op, noises);
      tuner_.observe_sample(kTensor, sample);
      shadow_ns_ -= sample.encode_ns + sample.decode_ns;
      if (unmeasured_ > 0 && --unmeasured_ == 0) shadow_ns_ = std::min(shadow_ns_, 0.0);
    }
  }

  TunerWorld& world_;
  std::string peer_;
  tuner::Tuner tuner_;
  tuner::RateWindow window_;
  bool led_ = false;
  double residual_ = 0.0;
  double shadow_ns_ = 0.0;
  std::size_t unmeasured_ = 0;
  std::size_t turn_ = 0;
};

// By the truth, whatever the tuner has measured until now.
std::vector<bool> allowed_now(const TunerWorld& world, double bound) {
  std::vector<bool> allowed;
  for (const RecordedCandidate& one : world.samples().candidates) {
    const auto worst =
        std::max_element(one.samples.begin(), one.samples.end(),
                         [](const auto& a, const auto& b) { return a.loss < b.loss; });
    allowed.push_back(one.candidate.lossless || worst->loss <= bound);
  }
  return allowed;
}

void find_recoveries(const Trace& trace, ContestResult& result) {
  for (std::size_t i = 0; i < trace.changes.size(); ++i) {
    const std::size_t begin = trace.changes[i];
    const std::size_t end = i + 1 < trace.changes.size() ? trace.changes[i + 1] : result.ops.size();
    std::size_t op = begin;
    while (op < end && result.ops[op].tuner_ns > kRecovered * result.ops[op].oracle_ns) ++op;
    result.recovery.push_back(op - begin);
  }
}

double total(const std::vector<OpRecord>& ops, double OpRecord::*time) {
  double sum = 0.0;
  for (const OpRecord& op : ops) sum += op.*time;
  return sum;
}

}  // namespace

ContestResult run_contest(TunerWorld& world, const Trace& trace, const ContestSetting& setting) {
  Noises noises(setting.seed);
  std::array<Node, 2> nodes = {Node(world, setting, "b"), Node(world, setting, "a")};
  for (Node& node : nodes) node.calibrate(noises);
  const auto usual = allowed_now(world, tuner::bounds_of(setting.level).loss);
  ContestResult result;
  result.trace = trace.name;
  result.bytes = world.bytes();
  result.static_ns.assign(usual.size(), 0.0);
  double norm = 1.0;
  for (std::size_t op = 0; op < trace.steps.size(); ++op) {
    const WorldState& state = trace.steps[op];
    if (std::find(setting.norm_jumps.begin(), setting.norm_jumps.end(), op) !=
        setting.norm_jumps.end()) {
      norm *= kNormJump;
    }
    const tuner::Choice lead = nodes[0].decide();
    const std::array<tuner::Choice, 2> choices = {lead, nodes[1].follow(lead)};
    const std::array<Sending, 2> sending = {sending_of(choices[0]), sending_of(choices[1])};
    OpRecord record;
    record.first = sending[0];
    record.tuner_ns = world.expected_ns(state, op, sending);
    const auto best =
        world.best_ns(state, op, allowed_now(world, nodes[0].policy().guard().bounds().loss));
    record.oracle_ns = best.single_ns;
    record.pair_ns = best.pair_ns;
    record.raw_ns = world.expected_ns(state, op, Sending{});
    result.ops.push_back(record);
    for (std::size_t i = 0; i < usual.size(); ++i) {
      const auto one = static_cast<CandidateIndex>(i);
      if (usual[i]) result.static_ns[i] += world.expected_ns(state, op, Sending{one, one, 0});
    }
    const Noise noise{noises.factor(), noises.factor(), noises.factor()};
    const PipelineOutcome outcome = world.run(state, op, sending, noise);
    const std::array<double, 2> inbound = {nodes[1].delivered(), nodes[0].delivered()};
    for (std::size_t i = 0; i < 2; ++i) {
      if (nodes[i].loses_too_much(choices[i], op)) ++result.violations;
      if (i == 0 && choices[i].probe_chunks > 0) ++result.probes;
      nodes[i].observe(
          {op, choices[i], choices[1 - i], state, outcome.ns, outcome.nodes[i], inbound[i], norm},
          noises);
    }
  }
  result.switches = nodes[0].policy().switches();
  result.alarms = nodes[0].policy().guard().alarms();
  find_recoveries(trace, result);
  return result;
}

double ContestResult::tuner_ns() const { return total(ops, &OpRecord::tuner_ns); }
double ContestResult::oracle_ns() const { return total(ops, &OpRecord::oracle_ns); }
double ContestResult::raw_ns() const { return total(ops, &OpRecord::raw_ns); }
double ContestResult::pair_ns() const { return total(ops, &OpRecord::pair_ns); }

double ContestResult::best_static_ns() const {
  double best = 0.0;
  for (const double ns : static_ns) {
    if (ns > 0.0 && (best == 0.0 || ns < best)) best = ns;
  }
  return best;
}

double ContestResult::worst_window(std::size_t count) const {
  double worst = -1.0;
  double tuner = 0.0;
  double raw = 0.0;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    tuner += ops[i].tuner_ns;
    raw += ops[i].raw_ns;
    if (i + 1 < count) continue;
    worst = std::max(worst, tuner / raw - 1.0);
    tuner -= ops[i + 1 - count].tuner_ns;
    raw -= ops[i + 1 - count].raw_ns;
  }
  return worst;
}

std::size_t ContestResult::longest_recovery() const {
  return recovery.empty() ? 0 : *std::max_element(recovery.begin(), recovery.end());
}

}  // namespace tern::bench
