#include "bench/tuner_node.h"

#include <algorithm>

namespace tern::bench {
namespace {

using tuner::CandidateIndex;

constexpr double kCalibrationError = 0.3;
constexpr std::uint32_t kTrain = 3;  // blocks right behind another that show a link's rate
constexpr double kSampleBytes = 64 << 10;

}  // namespace

TunerNode::TunerNode(TunerWorld& world, const NodeSetting& setting)
    : world_(world),
      setting_(setting),
      peer_(setting.self == 0 ? "b" : "a"),
      tuner_(world.samples().list(), setting.tuner) {
  tuner::TensorInfo info;
  info.name = "layer1.weight";
  info.shape.bytes = static_cast<std::uint64_t>(world.bytes());
  info.shape.chunk_bytes = static_cast<std::uint64_t>(world.samples().chunk_bytes);
  info.level = setting.level;
  info.peers = {peer_};
  tuner_.add_tensor(kTensor, info);
}

void TunerNode::calibrate(Draws& draws) {
  for (std::size_t i = 1; i < tuner_.candidates().size(); ++i) {
    const auto off = [&] { return 1.0 + kCalibrationError * (2.0 * draws.uniform() - 1.0); };
    tuner::SampleMeasurement measured = sample(static_cast<CandidateIndex>(i), 0, draws);
    measured.encode_ns *= off();
    measured.decode_ns *= off();
    tuner_.calibrate(measured);
  }
}

tuner::Choice TunerNode::follow(const tuner::Choice& lead) {
  tuner::Choice choice = decide();
  led_ = policy().allowed(lead.broadcast) && policy().allowed(lead.reduce.front());
  if (!led_) return choice;
  choice.broadcast = lead.broadcast;
  choice.reduce = lead.reduce;
  choice.trial = lead.trial;
  return choice;
}

bool TunerNode::loses_too_much(const tuner::Choice& choice, std::size_t op) const {
  const double bound = policy().guard().bounds().loss;
  return loss(choice.broadcast, op) > bound || loss(choice.reduce.front(), op) > bound;
}

double TunerNode::loss(CandidateIndex candidate, std::size_t op) const {
  return tuner_.candidates()[candidate].lossless ? 0.0 : world_.shadow(candidate, op).loss;
}

void TunerNode::observe(const LivedOp& op, Draws& draws) {
  const NodeOutcome& outcome = op.outcome;
  tuner::OpMeasurement measured;
  measured.op.choice = op.choice;
  measured.op.led = led_;
  measured.op.alike =
      op.other.broadcast == op.choice.broadcast && op.other.reduce == op.choice.reduce;
  measured.op.ns = read_clock(op.ns, draws);
  observe_rate(op, measured.op, draws);
  tuner_.observe_peer(peer_, op.inbound, world_.round_trip_ns() * draws.noise());
  tuner_.observe_lane({clock() * outcome.busy_ns, clock() * outcome.codec_ns,
                       static_cast<std::uint64_t>(outcome.wire_bytes), outcome.blocks});
  // The residual is what this op leaves of the gradient and of what was owed before.
  const double input = op.norm * op.norm * draws.noise();
  residual_ = loss(op.choice.reduce.front(), op.number) * (residual_ + input);
  measured.op.error = {{input, residual_, 1}, {}, false};
  measured.encoded_bytes = static_cast<std::uint64_t>(outcome.contribution_bytes);
  measured.encode_ns = clock() * outcome.contribution_ns;
  tuner_.observe_op(kTensor, measured);
  measure_in_shadow(op, draws);
}

double TunerNode::read_clock(double ns, Draws& draws) const {
  const Instruments& instruments = setting_.instruments;
  const bool leaps = instruments.leap_every > 0.0 && draws.one_in(instruments.leap_every);
  return clock() * ns + (leaps ? instruments.leap_ns : 0.0);
}

void TunerNode::observe_rate(const LivedOp& op, const tuner::SentOp& sent, Draws& draws) {
  const bool limited = op.outcome.longest_train < kTrain;
  const double rate = limited ? op.outcome.lower_bound : op.state.gbit * 1e9 / 8.0;
  const double seen = rate * draws.noise() / clock();
  rates_.push_back({seen, tuner_.evidence(kTensor, sent, seen, limited)});
  if (rates_.size() <= setting_.instruments.late_ops) return;
  const Rate read = rates_.front();
  rates_.pop_front();
  window_.observe(read.bytes_per_s, read.evidence);
  tuner_.observe_rate(peer_, read.bytes_per_s, read.evidence);
}

tuner::SampleMeasurement TunerNode::sample(CandidateIndex candidate, std::size_t op,
                                           Draws& draws) const {
  const CodecSample truth = world_.shadow(candidate, op);
  const double bytes = std::min(kSampleBytes, world_.samples().chunk_bytes);
  tuner::SampleMeasurement sample;
  sample.candidate = candidate;
  sample.bytes = static_cast<std::uint64_t>(bytes);
  sample.block_bytes = static_cast<std::uint64_t>(bytes * truth.wire);
  sample.encode_ns = clock() * bytes * truth.encode_ns * draws.noise();
  sample.decode_ns = clock() * bytes * truth.decode_ns * draws.noise();
  sample.loss = truth.loss;
  return sample;
}

// As the daemon: a sample is measured by all candidates, when neither its time nor the share of the
// lane's work is used up. A busy machine has no core for the shadow.
void TunerNode::measure_in_shadow(const LivedOp& op, Draws& draws) {
  now_ns_ += op.ns;
  busy_ns_ += op.outcome.busy_ns;
  if (op.state.load != 1.0 || now_ns_ < next_sample_ns_ ||
      shadow_ns_ > setting_.instruments.shadow_share * busy_ns_) {
    return;
  }
  next_sample_ns_ = now_ns_ + setting_.instruments.sample_every_ns;
  for (std::size_t i = 1; i < tuner_.candidates().size(); ++i) {
    const auto measured = sample(static_cast<CandidateIndex>(i), op.number, draws);
    tuner_.observe_sample(kTensor, measured);
    shadow_ns_ += measured.encode_ns + measured.decode_ns;
  }
}

}  // namespace tern::bench
