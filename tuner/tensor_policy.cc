#include "tuner/tensor_policy.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tern::tuner {
namespace {

constexpr double kSampleWeight = 0.2;     // of a new sample of ratio or loss
constexpr std::uint32_t kProbation = 12;  // ops that show what is peculiar to a recipe
constexpr double kFitWeight = 0.1;        // of an op in that, at least
constexpr double kFitHalfLife = 1024.0;   // ops until half of what was measured is forgotten
constexpr double kFitLimit = 2.0;         // an op further off than this was disturbed
constexpr double kUnknownSpread = 0.25;   // of the first sample's loss
constexpr std::uint32_t kHastyProbes = 3;
constexpr double kWireBound = 1.25;  // wire's time by the lane's of an op that fills its link
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
    case Reason::followed:
      return "the leading node has chosen it";
    case Reason::nothing_allowed:
      return "nothing else is allowed";
  }
  return "";
}

Choice all_by(CandidateIndex candidate, Choice choice) {
  choice.broadcast = candidate;
  std::fill(choice.reduce.begin(), choice.reduce.end(), candidate);
  return choice;
}

TensorPolicy::TensorPolicy(std::span<const Candidate> candidates, OpShape shape,
                           const Caution& caution, const PolicySettings& settings)
    : candidates_(candidates),
      shape_(shape),
      settings_(settings),
      guard_(caution.level, caution.bounds, caution.guard),
      records_(candidates.size()),
      tried_at_(candidates.size()) {
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

TensorPolicy::Outlook TensorPolicy::outlook(const Circumstances& circumstances) const noexcept {
  Outlook result;
  result.link = slowest(circumstances);
  const double inbound = slowest_inbound(circumstances);
  const auto ns_per_byte = [inbound](double rate) {
    return kNsPerSecond / (inbound > 0.0 ? std::min(rate, inbound) : rate);
  };
  if (result.link == nullptr) {
    result.count = 1;
    result.weights[0] = 1.0;
    result.ns_per_byte[0] = ns_per_byte(circumstances.assumed_rate);
  } else {
    result.count = result.link->count();
    for (std::size_t age = 0; age < result.count; ++age) {
      result.weights[age] = result.link->weight(age);
      result.ns_per_byte[age] = ns_per_byte(result.link->sample(age));
    }
  }
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    result.fits[i] = std::sqrt(fit_of(static_cast<CandidateIndex>(i)));
  }
  return result;
}

OpParts TensorPolicy::parts(const Pair& pair, const Circumstances& circumstances) const noexcept {
  CodecCost reduce = circumstances.costs[pair.reduce];
  CodecCost broadcast = circumstances.costs[pair.broadcast];
  reduce.wire = records_[pair.reduce].wire;
  broadcast.wire = records_[pair.broadcast].wire;
  const bool eager =
      pair.reduce == kRaw && pair.broadcast == kRaw && shape_.bytes <= shape_.eager_bytes;
  return eager ? parts_of_eager(shape_, reduce, circumstances.lane, circumstances.round_trip_ns)
               : parts_of(shape_, {reduce, broadcast}, circumstances.lane,
                          circumstances.round_trip_ns);
}

// The mean of the times at the recent rates of the slowest link, and not the time at their mean: a
// link that is slow now and then costs more than its mean says. `speedup` asks for another link.
double TensorPolicy::model_ns(const Pair& pair, const Circumstances& circumstances,
                              const Outlook& outlook, double speedup) const noexcept {
  const OpParts op = parts(pair, circumstances);
  double sum = 0.0;
  for (std::size_t i = 0; i < outlook.count; ++i) {
    sum += outlook.weights[i] * op.at(outlook.ns_per_byte[i] / speedup).total_ns;
  }
  return sum;
}

// What is peculiar to a recipe. It fades: the link or the load may be another now.
double TensorPolicy::fit_of(CandidateIndex candidate) const noexcept {
  const CandidateRecord& record = records_[candidate];
  if (!record.tried || record.fit == 1.0) return 1.0;
  const double age = static_cast<double>(guard_.ops() - record.fit_op);
  return std::pow(record.fit, std::exp2(-age / kFitHalfLife));
}

double TensorPolicy::time_of(const Pair& pair, const Circumstances& circumstances,
                             const Outlook& outlook) const noexcept {
  return model_ns(pair, circumstances, outlook, 1.0) * common_fit_.value() *
         outlook.fits[pair.reduce] * outlook.fits[pair.broadcast];
}

double TensorPolicy::expected_ns(CandidateIndex candidate,
                                 const Circumstances& circumstances) const noexcept {
  return time_of({candidate, candidate}, circumstances, outlook(circumstances));
}

Prediction TensorPolicy::predicted(CandidateIndex candidate,
                                   const Circumstances& circumstances) const noexcept {
  const RateWindow* link = slowest(circumstances);
  const double rate = link != nullptr ? link->mean() : circumstances.assumed_rate;
  return parts({candidate, candidate}, circumstances).at(kNsPerSecond / rate);
}

// ---- Decision

// One recipe for both legs. Two gain a few percent in most simulated cases, and about a fifth where
// 3LC stalls (docs/tuner.md, "to best pair"); but all nodes would have to find the same two.
TensorPolicy::Pair TensorPolicy::best_pair(const Circumstances& circumstances,
                                           const Outlook& outlook, double& ns) const noexcept {
  Pair best;
  ns = time_of(best, circumstances, outlook);
  for (CandidateIndex one = 1; one < candidate_count(); ++one) {
    if (!allowed(one)) continue;
    const double time = time_of({one, one}, circumstances, outlook);
    if (time >= ns) continue;
    ns = time;
    best = {one, one};
  }
  return best;
}

TensorPolicy::Pair TensorPolicy::take(const Pair& pair, Reason reason) {
  if (!(pair == kept_)) {
    ++switches_;
    switched_at_ = decisions_;
    reason_ = reason;
  }
  better_for_ = 0;
  return pair;
}

TensorPolicy::Pair TensorPolicy::choose(const Circumstances& circumstances,
                                        const Outlook& outlook) {
  std::uint64_t changes = 0;
  for (const RateWindow* peer : circumstances.peers)
    changes += peer != nullptr ? peer->changes() : 0;
  const bool link_changed = std::exchange(link_changes_, changes) != changes;
  const bool alarmed = guard_.alarm() != Alarm::none;
  const bool alarm_over = std::exchange(was_alarmed_, alarmed) && !alarmed;
  const bool may_stay = allowed(kept_.reduce) && allowed(kept_.broadcast);
  if (led_ && may_stay) return kept_;
  double best_ns = 0.0;
  const Pair best = best_pair(circumstances, outlook, best_ns);
  if (!may_stay) return take(best, best == Pair{} ? Reason::nothing_allowed : Reason::alarm);
  if (best == kept_) {
    better_for_ = 0;
    return kept_;
  }
  const double gain = 1.0 - best_ns / time_of(kept_, circumstances, outlook);
  // Nobody must wait for raw: it is the promise.
  const double at_once = best == Pair{} ? settings_.small_gain : settings_.switch_gain;
  const Reason reason = alarm_over     ? Reason::alarm_over
                        : link_changed ? Reason::link_changed
                                       : Reason::fastest;
  if (gain > at_once &&
      (link_changed || switches_ == 0 || decisions_ >= switched_at_ + settings_.dwell)) {
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

// The model may be wrong of a recipe that is not in use: it is used for one op now and then, the
// more rarely the more that costs if the model is right; raw too, for ever. All nodes try at the
// same recipe at the same op, as the leading one says.
bool TensorPolicy::plan_trial(const Circumstances& circumstances, const Outlook& outlook,
                              const Pair& current, Pair& trial) {
  if (led_ || settings_.trial_every == 0 ||
      decisions_ % settings_.trial_every != settings_.trial_every / 2) {
    return false;
  }
  const auto candidate =
      static_cast<CandidateIndex>((decisions_ / settings_.trial_every) % candidates_.size());
  const Pair pair{candidate, candidate};
  if (pair == current || !allowed(candidate)) return false;
  const double now = time_of(current, circumstances, outlook);
  const double loss = time_of(pair, circumstances, outlook) - now;
  const double idle = static_cast<double>(decisions_ - tried_at_[candidate]);
  if (loss > settings_.trial_budget * idle * now) return false;
  if (loss > settings_.trial_loss * time_of({}, circumstances, outlook)) return false;
  tried_at_[candidate] = decisions_;
  trial = pair;
  return true;
}

// Enough chunks back to back to fill the link for a while, but not much of the op.
std::uint8_t TensorPolicy::probe_length() const noexcept {
  const std::uint64_t chunks = shape_.bytes / shape_.nodes / shape_.chunk_bytes;
  return static_cast<std::uint8_t>(std::min<std::uint64_t>(settings_.probe_chunks, chunks / 2));
}

// Whether a few chunks are sent raw to see the link. Not if the link has been full of late, nor if
// even a far better link would change nothing. At once if there is a sign that the link is faster,
// otherwise only so often that it costs next to nothing.
bool TensorPolicy::plan_probe(const Circumstances& circumstances, const Outlook& outlook,
                              const Pair& current) {
  if (current.reduce == kRaw || probe_length() < 2) return false;
  const RateWindow* link = outlook.link;
  const Prediction now = predicted(current.reduce, circumstances);
  // The link should have been full, and was not.
  const bool idle_link =
      link != nullptr && link->limited_since() > 0 && now.wire_ns > kWireBound * now.work_ns;
  const bool sign = link != nullptr && (link->may_be_faster() || idle_link);
  if (!sign) hasty_probes_ = 0;
  const bool hasty = sign && hasty_probes_ < kHastyProbes;
  if (!hasty) {
    if (decisions_ < probed_at_ + settings_.probe_every) return false;
    if (link != nullptr && link->limited_since() < settings_.probe_every / 2) return false;
  }
  const double best = model_ns(current, circumstances, outlook, kHidden);
  bool would_change = false;
  for (CandidateIndex one = 0; one < candidate_count() && !would_change; ++one) {
    if (!allowed(one)) continue;
    would_change = model_ns({one, one}, circumstances, outlook, kHidden) <
                   (1.0 - settings_.switch_gain) * best;
  }
  if (!would_change) return false;
  const double rate = link != nullptr ? link->mean() : circumstances.assumed_rate;
  const double bytes = static_cast<double>(probe_length() * shape_.chunk_bytes);
  const double cost = bytes * (1.0 - records_[current.reduce].wire) / rate * kNsPerSecond;
  const double every = cost / (settings_.probe_budget * time_of(current, circumstances, outlook));
  if (!hasty && static_cast<double>(decisions_ - probed_at_) < every) return false;
  if (hasty) ++hasty_probes_;
  probed_at_ = decisions_;
  return true;
}

// A peer that the op does not wait for gains nothing from loss: it gets the safest recipe that does
// not make it, or the lane, the bottleneck. Links may all go through one interface, so that what
// one gets is taken from the others: their times are added up. Beside a slow moment of another node
// all links look free, so that only those count that are clearly faster than the slowest.
void TensorPolicy::spread(const Pair& pair, const Circumstances& circumstances) {
  choice_.broadcast = pair.broadcast;
  std::fill(choice_.reduce.begin(), choice_.reduce.end(), pair.reduce);
  if (candidates_[pair.reduce].lossless || choice_.reduce.size() < 2) return;
  if (!(shape_.legs == OpLegs{})) return;  // what follows is about an all_reduce
  CodecCost cost = circumstances.costs[pair.reduce];
  cost.wire = records_[pair.reduce].wire;
  CodecCost results = circumstances.costs[pair.broadcast];
  results.wire = records_[pair.broadcast].wire;
  const RateWindow* slow = slowest(circumstances);
  if (slow == nullptr) return;
  const double inbound = slowest_inbound(circumstances);
  const double bottleneck = inbound > 0.0 ? std::min(slow->mean(), inbound) : slow->mean();
  const Prediction op = predict(shape_, {cost, results}, circumstances.lane,
                                {bottleneck, circumstances.round_trip_ns});
  const double limit = op.total_ns * (1.0 + settings_.slack) - op.fixed_ns;
  const double share = static_cast<double>(shape_.bytes) / shape_.nodes;
  double work = op.work_ns;
  double wire = 0.0;
  for (const RateWindow* link : circumstances.peers) {
    if (link == nullptr || !link->known()) continue;
    wire += share * (cost.wire + results.wire) / link->mean() * kNsPerSecond;
  }
  for (std::size_t peer = 0; peer < choice_.reduce.size(); ++peer) {
    const RateWindow* link = circumstances.peers[peer];
    if (link == nullptr || !link->clearly_faster_than(*slow)) continue;
    for (CandidateIndex one = 0; one < candidate_count(); ++one) {
      if (one == pair.reduce || !allowed(one)) continue;
      if (records_[one].loss >= records_[pair.reduce].loss) continue;
      const double more_wire =
          share * (records_[one].wire - cost.wire) / link->mean() * kNsPerSecond;
      const double more_work =
          share *
          (circumstances.costs[one].encode_ns - cost.encode_ns +
           circumstances.costs[one].decode_ns - cost.decode_ns +
           2.0 * (records_[one].wire - cost.wire) * circumstances.lane.byte_ns) /
          shape_.lanes;
      if (wire + more_wire > limit || work + more_work > limit) continue;
      work += more_work;
      wire += more_wire;
      choice_.reduce[peer] = one;
      break;  // candidates come from the safest on
    }
  }
}

const Choice& TensorPolicy::decide(const Circumstances& circumstances) {
  ++decisions_;
  const Outlook now = outlook(circumstances);
  kept_ = choose(circumstances, now);
  choice_.probe_chunks = 0;
  Pair trial;
  choice_.trial = plan_trial(circumstances, now, kept_, trial);
  if (choice_.trial) {
    choice_.broadcast = trial.broadcast;
    std::fill(choice_.reduce.begin(), choice_.reduce.end(), trial.reduce);
    return choice_;
  }
  spread(kept_, circumstances);
  if (plan_probe(circumstances, now, kept_)) choice_.probe_chunks = probe_length();
  return choice_;
}

void TensorPolicy::observe_op(const SentOp& op, const Circumstances& circumstances) noexcept {
  guard_.observe(op.error);
  last_measured_ns_ = op.ns;
  led_ = op.led;
  const Choice& choice = op.choice;
  if (op.led && !choice.trial) {
    kept_ = take({choice.broadcast, choice.broadcast}, Reason::followed);
  }
  // Of choices that differ by node, or that probe, nothing is learnt: the model is of plain ones.
  const bool plain = op.alike && choice.probe_chunks == 0 && !choice.reduce.empty() &&
                     std::all_of(choice.reduce.begin(), choice.reduce.end(),
                                 [&](CandidateIndex one) { return one == choice.reduce[0]; });
  if (!plain || !(op.ns > 0.0)) return;
  const Pair pair{choice.reduce[0], choice.broadcast};
  const double model = model_ns(pair, circumstances, outlook(circumstances), 1.0);
  learn_fit(pair, std::clamp(op.ns / model, 1.0 / kFitLimit, kFitLimit));
}

// Measured time by predicted is what all recipes have in common, such as a busy machine or a term
// that the model lacks, and what is peculiar to one. The first ops by a recipe show the latter, by
// comparison with the one before; what changes later while it stays in use is the former.
void TensorPolicy::learn_fit(const Pair& pair, double fit) noexcept {
  const double reduce_fit = fit_of(pair.reduce);
  const double broadcast_fit = fit_of(pair.broadcast);
  const double own = std::sqrt(reduce_fit * broadcast_fit);
  CandidateRecord& first = records_[pair.broadcast];
  const bool only = std::none_of(records_.begin(), records_.end(), [&](const auto& record) {
    return record.tried && &record != &first;
  });
  const bool settled = only || (pair == kept_ && first.uses >= kProbation);
  if (settled) common_fit_.observe(fit / own);
  const double rest = fit / (common_fit_.value() * own);
  const auto learn = [&](CandidateIndex candidate, double before) {
    CandidateRecord& record = records_[candidate];
    const double weight =
        settled ? 0.0 : std::max(kFitWeight, 1.0 / (1.0 + static_cast<double>(record.uses)));
    record.fit = std::clamp(before * std::pow(rest, weight), 1.0 / kFitLimit, kFitLimit);
    record.fit_op = guard_.ops();
    record.tried = true;
    ++record.uses;
  };
  learn(pair.reduce, reduce_fit);
  if (pair.broadcast != pair.reduce) learn(pair.broadcast, broadcast_fit);
  // What has not been used for long must show itself again.
  for (CandidateRecord& record : records_) {
    if (record.uses > 1 && guard_.ops() - record.fit_op > std::uint64_t{kProbation} * 8)
      record.uses = 1;
  }
}

}  // namespace tern::tuner
