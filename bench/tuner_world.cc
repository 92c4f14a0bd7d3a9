#include "bench/tuner_world.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace tern::bench {
namespace {

constexpr double kBytesPerGbit = 1e9 / 8.0;
constexpr double kPhases = 16.0;  // of a swing; the times between them are taken for those at them

}  // namespace

Sending sending_of(const tuner::Choice& choice) {
  return {choice.reduce.front(), choice.broadcast, choice.probe_chunks};
}

TunerWorld::TunerWorld(const TunerSamples& samples, double bytes, Oddity oddity)
    : samples_(samples), bytes_(bytes), oddity_(std::move(oddity)) {
  for (const RecordedCandidate& one : samples_.candidates) {
    std::vector<RecordedOp> ops;
    for (const RecordedOp& op : samples_.ops) {
      if (op.recipe == one.candidate.recipe && std::abs(std::log2(op.bytes / bytes)) < 1.0) {
        ops.push_back(op);
      }
    }
    std::sort(ops.begin(), ops.end(), [](const auto& a, const auto& b) { return a.rate < b.rate; });
    TERN_CHECK(!oddity_.recorded_ops || !ops.empty());
    recorded_.push_back(std::move(ops));
  }
}

// Of a codec, by what was recorded. Raw is none.
double TunerWorld::slowness(tuner::CandidateIndex candidate, std::size_t op) const {
  if (candidate == tuner::kRaw) return 1.0;
  if (oddity_.swing == 0.0 || samples_.candidates[candidate].candidate.recipe != oddity_.recipe) {
    return oddity_.codecs;
  }
  const double part =
      static_cast<double>(op % oddity_.period) / static_cast<double>(oddity_.period);
  return oddity_.codecs *
         (1.0 + oddity_.swing * std::sin(2.0 * M_PI * std::floor(part * kPhases) / kPhases));
}

StageCost TunerWorld::cost(tuner::CandidateIndex candidate, std::size_t op, double noise) const {
  const RecordedCandidate& one = samples_.candidates[candidate];
  const double on_lane = oddity_.on_lane.empty() ? kOnLane : oddity_.on_lane[candidate];
  const double factor = on_lane * noise * slowness(candidate, op);
  StageCost cost;
  cost.encode_ns = one.mean.encode_ns * factor;
  cost.decode_ns = one.mean.decode_ns * factor;
  cost.wire = one.mean.wire;
  if (one.candidate.recipe == oddity_.recipe) {
    cost.stall_every = oddity_.stall_every;
    cost.stall_ns = oddity_.stall_ns;
  }
  return cost;
}

PipelineOutcome TunerWorld::run(const WorldState& state, std::size_t op,
                                const std::array<Sending, 2>& sending, const Noise& noise) const {
  PipelineOutcome outcome = computed(state, op, sending, noise);
  if (!oddity_.recorded_ops) return outcome;
  // Noise moves the recorded time as it moves the computed one.
  const double recorded = recorded_ns(sending, state.gbit * kBytesPerGbit);
  outcome.ns *= recorded / computed(state, op, sending, Noise{}).ns;
  return outcome;
}

PipelineOutcome TunerWorld::computed(const WorldState& state, std::size_t op,
                                     const std::array<Sending, 2>& sending,
                                     const Noise& noise) const {
  PipelineSetting setting;
  setting.bytes = bytes_;
  setting.chunk_bytes = samples_.chunk_bytes;
  setting.rate = state.gbit * kBytesPerGbit * noise.rate;
  setting.round_trip_ns = kRoundTripNs;
  setting.byte_ns = samples_.lane_byte_ns * oddity_.lane_byte * noise.lane;
  setting.chunk_ns = samples_.lane_chunk_ns * oddity_.lane_chunk * noise.lane;
  setting.load = state.load;
  std::array<NodePlan, 2> plans;
  for (std::size_t i = 0; i < 2; ++i) {
    plans[i] = {cost(sending[i].reduce, op, noise.codec),
                cost(sending[i].broadcast, op, noise.codec), sending[i].probe_chunks,
                cost(tuner::kRaw, op, noise.codec)};
  }
  return run_pipeline(setting, plans);
}

// What was measured is of whole ops by one recipe; a mixed one is taken to lie between.
double TunerWorld::recorded_ns(const std::array<Sending, 2>& sending, double rate) const {
  const double chunks = std::max(1.0, 0.5 * bytes_ / samples_.chunk_bytes);
  double ns = 1.0;
  for (const Sending& one : sending) {
    const double probed = std::min(1.0, one.probe_chunks / chunks);
    const double reduce =
        probed * recorded_ns(tuner::kRaw, rate) + (1.0 - probed) * recorded_ns(one.reduce, rate);
    ns *= std::pow(reduce * recorded_ns(one.broadcast, rate), 0.25);
  }
  return ns;
}

// Between two measured rates along a straight line of logarithms.
double TunerWorld::recorded_ns(tuner::CandidateIndex candidate, double rate) const {
  const auto& ops = recorded_[candidate];
  const auto above = std::find_if(ops.begin(), ops.end(),
                                  [rate](const RecordedOp& op) { return op.rate >= rate; });
  if (above == ops.end()) return ops.back().ns;
  if (above == ops.begin()) return ops.front().ns;
  const auto below = above - 1;
  const double part = std::log(rate / below->rate) / std::log(above->rate / below->rate);
  return below->ns * std::pow(above->ns / below->ns, part);
}

std::uint64_t TunerWorld::place(const WorldState& state, std::size_t op) {
  const double phase = oddity_.swing == 0.0
                           ? 0.0
                           : std::floor(static_cast<double>(op % oddity_.period) * kPhases /
                                        static_cast<double>(oddity_.period));
  return places_.try_emplace({state.gbit, state.load, phase}, places_.size()).first->second;
}

double TunerWorld::expected_ns(const WorldState& state, std::size_t op,
                               const std::array<Sending, 2>& sending) {
  const auto& [first, second] = sending;
  if (first == second && first.probe_chunks == 0) {
    return pair_times(state, op)[first.reduce * candidates() + first.broadcast];
  }
  std::uint64_t key = place(state, op);
  for (const Sending& one : sending) {
    key = (key << 20) | (std::uint64_t{one.reduce} << 14) | (std::uint64_t{one.broadcast} << 8) |
          one.probe_chunks;
  }
  const auto found = times_.find(key);
  if (found != times_.end()) return found->second;
  const double ns = run(state, op, sending, Noise{}).ns;
  times_.emplace(key, ns);
  return ns;
}

const std::vector<double>& TunerWorld::pair_times(const WorldState& state, std::size_t op) {
  std::vector<double>& times = pairs_[place(state, op)];
  if (!times.empty()) return times;
  for (std::size_t reduce = 0; reduce < candidates(); ++reduce) {
    for (std::size_t broadcast = 0; broadcast < candidates(); ++broadcast) {
      const Sending both{static_cast<tuner::CandidateIndex>(reduce),
                         static_cast<tuner::CandidateIndex>(broadcast), 0};
      times.push_back(run(state, op, {both, both}, Noise{}).ns);
    }
  }
  return times;
}

CodecSample TunerWorld::shadow(tuner::CandidateIndex candidate, std::size_t op) const {
  const auto& samples = samples_.candidates[candidate].samples;
  CodecSample sample = samples[op % samples.size()];
  sample.encode_ns *= slowness(candidate, op);
  sample.decode_ns *= slowness(candidate, op);
  return sample;
}

}  // namespace tern::bench
