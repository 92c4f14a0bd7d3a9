#include "tuner/tensor_policy.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tern::tuner {
namespace {

constexpr double kSampleWeight = 0.3;    // of a new sample of ratio or loss
constexpr double kFitWeight = 0.25;      // of a new op in the ratio of measured to predicted
constexpr double kFitHalfLife = 256.0;   // ops until half of what was measured is forgotten
constexpr double kFitLimit = 4.0;        // an op further off than this was disturbed
constexpr double kUnknownSpread = 0.25;  // of the first sample's loss
constexpr std::uint32_t kHastyProbes = 3;
// So many times faster: what a link could be that has not been full for a while.
constexpr double kHidden = 16.0;

double slowest_inbound(const Circumstances& circumstances) noexcept {
  double slowest = 0.0;
  for (const double rate : circumstances.inbound) {
    if (rate > 0.0 && (slowest == 0.0 || rate < slowest)) slowest = rate;
  }
  return slowest;
}

}  // namespace

std::string_view reason_text(Reason reason) noexcept {
  switch (reason) {
    case Reason::start:
      return "nothing is known yet";
    case Reason::fastest:
      return "the least predicted time";
    case Reason::alarm:
      return "an alarm restricts the loss";
    case Reason::alarm_over:
      return "a bolder recipe is allowed again";
    case Reason::link_changed:
      return "the link delivers another rate";
    case Reason::trial:
      return "one operation as a trial";
    case Reason::nothing_allowed:
      return "nothing else is allowed";
  }
  return "";
}

TensorPolicy::TensorPolicy(std::span<const Candidate> candidates, OpShape shape, Level level,
                           Bounds bounds, const PolicySettings& settings,
                           const GuardSettings& guard)
    : candidates_(candidates),
      shape_(shape),
      settings_(settings),
      guard_(level, bounds, guard),
      records_(candidates.size()) {
  choice_.reduce.assign(shape.nodes - 1, kRaw);
  records_[kRaw].measured = true;
}

// A lossy recipe is not used before it has been measured on this tensor.
bool TensorPolicy::allowed(CandidateIndex candidate) const noexcept {
  if (candidate == kRaw) return true;
  if ((excluded_ >> candidate & 1) != 0) return false;
  const CandidateRecord& record = records_[candidate];
  if (!record.measured) return false;
  return candidates_[candidate].lossless || record.cautious_loss() <= guard_.bounds().loss;
}

void TensorPolicy::observe_sample(CandidateIndex candidate, double wire, double loss) noexcept {
  CandidateRecord& record = records_[candidate];
  if (!std::isfinite(wire) || !std::isfinite(loss)) return;
  if (!record.measured) {
    record.measured = true;
    record.wire = wire;
    record.loss = loss;
    record.loss_spread = std::min(kUnknownSpread * loss, 0.25 * (1.0 - std::min(loss, 1.0)));
    return;
  }
  record.wire += kSampleWeight * (wire - record.wire);
  record.loss_spread += kSampleWeight * (std::abs(loss - record.loss) - record.loss_spread);
  record.loss += kSampleWeight * (loss - record.loss);
}

// ---- Prediction

const RateWindow* TensorPolicy::slowest(const Circumstances& circumstances) const noexcept {
  const RateWindow* found = nullptr;
  for (const RateWindow* peer : circumstances.peers) {
    if (peer == nullptr || !peer->known()) continue;
    if (found == nullptr || peer->mean() < found->mean()) found = peer;
  }
  return found;
}

// The mean over what the slowest link has delivered of late, and not the time at the mean rate: a
// link that is slow now and then costs more than its mean says. `speedup` asks for another link.
double TensorPolicy::model_ns(const Pair& pair, const Circumstances& circumstances,
                              double speedup) const noexcept {
  CodecCost reduce = circumstances.costs[pair.reduce];
  CodecCost broadcast = circumstances.costs[pair.broadcast];
  reduce.wire = records_[pair.reduce].wire;
  broadcast.wire = records_[pair.broadcast].wire;
  const bool eager =
      pair.reduce == kRaw && pair.broadcast == kRaw && shape_.bytes <= shape_.eager_bytes;
  const double inbound = slowest_inbound(circumstances);
  const auto at = [&](double rate) {
    if (inbound > 0.0) rate = std::min(rate, inbound);
    rate *= speedup;
    return eager ? predict_eager(shape_, reduce, circumstances.lane, rate,
                                 circumstances.round_trip_ns)
                       .total_ns
                 : predict(shape_, reduce, broadcast, circumstances.lane, rate,
                           circumstances.round_trip_ns)
                       .total_ns;
  };
  const RateWindow* link = slowest(circumstances);
  if (link == nullptr) return at(circumstances.assumed_rate);
  double sum = 0.0;
  for (std::size_t age = 0; age < link->count(); ++age) {
    sum += link->weight(age) * at(link->sample(age));
  }
  return sum;
}

// What measured ops say of the model. Of a recipe that has not been used for long it fades into
// what they say of the present one: that is what has changed for all.
double TensorPolicy::fit_of(CandidateIndex candidate) const noexcept {
  const CandidateRecord& now = records_[kept_.reduce];
  const double common = now.tried ? now.fit : 1.0;
  const CandidateRecord& record = records_[candidate];
  if (!record.tried) return common;
  const double age = static_cast<double>(guard_.ops() - record.fit_op);
  const double memory = std::exp2(-age / kFitHalfLife);
  return std::pow(record.fit, memory) * std::pow(common, 1.0 - memory);
}

double TensorPolicy::time_of(const Pair& pair, const Circumstances& circumstances) const noexcept {
  return model_ns(pair, circumstances, 1.0) *
         std::sqrt(fit_of(pair.reduce) * fit_of(pair.broadcast));
}

double TensorPolicy::expected_ns(CandidateIndex candidate,
                                 const Circumstances& circumstances) const noexcept {
  return time_of({candidate, candidate}, circumstances);
}

Prediction TensorPolicy::predicted(CandidateIndex candidate,
                                   const Circumstances& circumstances) const noexcept {
  CodecCost cost = circumstances.costs[candidate];
  cost.wire = records_[candidate].wire;
  const RateWindow* link = slowest(circumstances);
  const double rate = link != nullptr ? link->mean() : circumstances.assumed_rate;
  if (candidate == kRaw && shape_.bytes <= shape_.eager_bytes) {
    return predict_eager(shape_, cost, circumstances.lane, rate, circumstances.round_trip_ns);
  }
  return predict(shape_, cost, cost, circumstances.lane, rate, circumstances.round_trip_ns);
}

// ---- Decision

TensorPolicy::Pair TensorPolicy::best_pair(const Circumstances& circumstances,
                                           double& ns) const noexcept {
  Pair best;
  ns = time_of(best, circumstances);
  const auto count = static_cast<CandidateIndex>(candidates_.size());
  for (CandidateIndex reduce = 0; reduce < count; ++reduce) {
    if (!allowed(reduce)) continue;
    for (CandidateIndex broadcast = 0; broadcast < count; ++broadcast) {
      if (!allowed(broadcast)) continue;
      const Pair pair{reduce, broadcast};
      const double time = time_of(pair, circumstances);
      if (time >= ns) continue;
      ns = time;
      best = pair;
    }
  }
  return best;
}

TensorPolicy::Pair TensorPolicy::choose(const Circumstances& circumstances) {
  double best_ns = 0.0;
  const Pair best = best_pair(circumstances, best_ns);
  std::uint64_t changes = 0;
  for (const RateWindow* peer : circumstances.peers)
    changes += peer != nullptr ? peer->changes() : 0;
  const bool link_changed = std::exchange(link_changes_, changes) != changes;
  const bool alarmed = guard_.alarm() != Alarm::none;
  const bool alarm_over = std::exchange(was_alarmed_, alarmed) && !alarmed;
  const bool may_stay = allowed(kept_.reduce) && allowed(kept_.broadcast);
  const auto take = [&](const Pair& pair, Reason reason) {
    if (!(pair == kept_)) {
      ++switches_;
      switched_at_ = decisions_;
      reason_ = pair == Pair{} && !may_stay ? Reason::nothing_allowed : reason;
    }
    better_for_ = 0;
    return pair;
  };
  if (!may_stay) return take(best, Reason::alarm);
  if (best == kept_) {
    better_for_ = 0;
    return kept_;
  }
  const double gain = 1.0 - best_ns / time_of(kept_, circumstances);
  // Nobody must wait for raw: it is the promise.
  const double at_once = best == Pair{} ? settings_.small_gain : settings_.switch_gain;
  const Reason reason = alarm_over     ? Reason::alarm_over
                        : link_changed ? Reason::link_changed
                                       : Reason::fastest;
  if (gain > at_once && (link_changed || decisions_ >= switched_at_ + settings_.dwell)) {
    return take(best, reason);
  }
  if (gain > settings_.small_gain) {
    better_for_ = best == better_ ? better_for_ + 1 : 1;
    better_ = best;
    if (better_for_ > settings_.patience) return take(best, reason);
  } else {
    better_for_ = 0;
  }
  return kept_;
}

// A recipe that the model puts close behind is used for one op now and then: the model may be
// wrong. All nodes try at the same op, by its number.
bool TensorPolicy::plan_trial(const Circumstances& circumstances, const Pair& current,
                              Pair& trial) {
  if (settings_.trial_every == 0 ||
      decisions_ % settings_.trial_every != settings_.trial_every / 2) {
    return false;
  }
  const double now = time_of(current, circumstances);
  const auto count = static_cast<std::uint32_t>(candidates_.size());
  for (std::uint32_t step = 1; step <= count; ++step) {
    const auto candidate = static_cast<CandidateIndex>((next_trial_ + step) % count);
    const Pair pair{candidate, candidate};
    if (pair == current || !allowed(candidate)) continue;
    if (time_of(pair, circumstances) > (1.0 + settings_.trial_loss) * now) continue;
    next_trial_ = candidate;
    trial = pair;
    return true;
  }
  return false;
}

bool TensorPolicy::pays_for_chunks(const Pair& pair) const noexcept {
  return shape_.bytes / shape_.nodes >= 4 * settings_.probe_chunks * shape_.chunk_bytes ||
         pair.reduce == kRaw;
}

// Whether a few chunks are sent raw to see the link. Not if the link has been full of late, nor if
// even a far better link would change nothing; and only so often that it costs next to nothing.
bool TensorPolicy::plan_probe(const Circumstances& circumstances, const Pair& current) {
  if (current.reduce == kRaw) return false;
  const RateWindow* link = slowest(circumstances);
  const bool hasty = link != nullptr && link->may_be_faster() && hasty_probes_ < kHastyProbes;
  if (!hasty) {
    if (decisions_ < probed_at_ + settings_.probe_every) return false;
    hasty_probes_ = 0;
    if (link != nullptr && link->limited_since() < settings_.probe_every / 2) return false;
  }
  double best = model_ns(current, circumstances, kHidden);
  Pair fastest = current;
  for (CandidateIndex one = 0; one < candidates_.size(); ++one) {
    if (!allowed(one)) continue;
    const double time = model_ns({one, one}, circumstances, kHidden);
    if (time < (1.0 - settings_.switch_gain) * best) {
      best = time;
      fastest = {one, one};
    }
  }
  if (fastest == current) return false;
  const double rate = link != nullptr ? link->mean() : circumstances.assumed_rate;
  const std::uint64_t bytes =
      std::min(settings_.probe_chunks * shape_.chunk_bytes, shape_.bytes / shape_.nodes);
  const double cost =
      static_cast<double>(bytes) * (1.0 - records_[current.reduce].wire) / rate * 1e9;
  const double every = cost / (settings_.probe_budget * time_of(current, circumstances));
  if (!hasty && static_cast<double>(decisions_ - probed_at_) < every) return false;
  if (hasty) ++hasty_probes_;
  probed_at_ = decisions_;
  return true;
}

// A peer that the op does not wait for gains nothing from loss: it gets the safest recipe that does
// not make it, or the lane, the bottleneck.
void TensorPolicy::spread(const Pair& pair, const Circumstances& circumstances) {
  choice_.broadcast = pair.broadcast;
  std::fill(choice_.reduce.begin(), choice_.reduce.end(), pair.reduce);
  if (candidates_[pair.reduce].lossless || choice_.reduce.size() < 2) return;
  CodecCost cost = circumstances.costs[pair.reduce];
  cost.wire = records_[pair.reduce].wire;
  CodecCost results = circumstances.costs[pair.broadcast];
  results.wire = records_[pair.broadcast].wire;
  const RateWindow* slow = slowest(circumstances);
  if (slow == nullptr) return;
  const double inbound = slowest_inbound(circumstances);
  const double bottleneck = inbound > 0.0 ? std::min(slow->mean(), inbound) : slow->mean();
  const Prediction op =
      predict(shape_, cost, results, circumstances.lane, bottleneck, circumstances.round_trip_ns);
  const double limit = op.total_ns * (1.0 + settings_.slack) - op.fixed_ns;
  const double share = static_cast<double>(shape_.bytes) / shape_.nodes;
  double work = op.work_ns;
  for (std::size_t peer = 0; peer < choice_.reduce.size(); ++peer) {
    const RateWindow* link = circumstances.peers[peer];
    if (link == nullptr || !link->known()) continue;
    for (CandidateIndex one = 0; one < candidates_.size(); ++one) {
      if (one == pair.reduce || !allowed(one)) continue;
      if (records_[one].loss >= records_[pair.reduce].loss) continue;
      const double wire_ns = share * (records_[one].wire + results.wire) / link->mean() * 1e9;
      const double more_work =
          share *
          (circumstances.costs[one].encode_ns - cost.encode_ns +
           circumstances.costs[one].decode_ns - cost.decode_ns +
           2.0 * (records_[one].wire - cost.wire) * circumstances.lane.byte_ns) /
          shape_.lanes;
      if (wire_ns > limit || work + more_work > limit) continue;
      work += more_work;
      choice_.reduce[peer] = one;
      break;  // candidates come from the safest on
    }
  }
}

const Choice& TensorPolicy::decide(const Circumstances& circumstances) {
  ++decisions_;
  kept_ = choose(circumstances);
  choice_.probe_chunks = 0;
  Pair trial;
  if (plan_trial(circumstances, kept_, trial)) {
    choice_.broadcast = trial.broadcast;
    std::fill(choice_.reduce.begin(), choice_.reduce.end(), trial.reduce);
    return choice_;
  }
  spread(kept_, circumstances);
  if (pays_for_chunks(kept_) && plan_probe(circumstances, kept_)) {
    choice_.probe_chunks = settings_.probe_chunks;
  }
  return choice_;
}

void TensorPolicy::observe_op(const Choice& choice, double measured_ns, const ErrorSample& error,
                              const Circumstances& circumstances) noexcept {
  guard_.observe(error);
  last_measured_ns_ = measured_ns;
  // Of choices that differ by peer, or that probe, nothing is learnt: the model is of plain ones.
  const bool plain = choice.probe_chunks == 0 && !choice.reduce.empty() &&
                     std::all_of(choice.reduce.begin(), choice.reduce.end(),
                                 [&](CandidateIndex one) { return one == choice.reduce[0]; });
  if (!plain || !(measured_ns > 0.0)) return;
  const double model = model_ns({choice.reduce[0], choice.broadcast}, circumstances, 1.0);
  const double fit = std::clamp(measured_ns / model, 1.0 / kFitLimit, kFitLimit);
  const auto learn = [&](CandidateIndex candidate) {
    CandidateRecord& record = records_[candidate];
    // What was learnt long ago counts for what it still is.
    record.fit = record.tried
                     ? std::pow(fit_of(candidate), 1.0 - kFitWeight) * std::pow(fit, kFitWeight)
                     : fit;
    record.fit_op = guard_.ops();
    record.tried = true;
  };
  learn(choice.reduce[0]);
  if (choice.broadcast != choice.reduce[0]) learn(choice.broadcast);
}

}  // namespace tern::tuner
