#include "tuner/tensor_policy.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace tern::tuner {
namespace {

constexpr double kSampleWeight = 0.2;     // of a new sample of ratio or loss
constexpr std::uint32_t kProbation = 12;  // ops that show what is peculiar to a recipe
constexpr double kFitWeight = 0.1;        // of an op in that, at least
constexpr double kFitHalfLife = 1024.0;   // ops until half of what was measured is forgotten
constexpr double kFitLimit = 4.0;         // an op further off than this was disturbed
constexpr std::int32_t kNoChance = 8;     // ops in a row that are so far off were not
constexpr double kMostFit = 32.0;         // a worse recipe is never chosen either
constexpr double kRestlessFade = 0.97;    // at each op
constexpr double kLoadChange = 1.3;
constexpr double kUnknownSpread = 0.25;  // of the first sample's loss

double slowest_inbound(const Circumstances& circumstances) noexcept {
  double slowest = 0.0;
  for (const double rate : circumstances.inbound) {
    if (rate > 0.0 && (slowest == 0.0 || rate < slowest)) slowest = rate;
  }
  return slowest;
}

const RateWindow* slowest(const Circumstances& circumstances) noexcept {
  const RateWindow* found = nullptr;
  for (const RateWindow* peer : circumstances.peers) {
    if (peer == nullptr || !peer->known()) continue;
    if (found == nullptr || peer->mean() < found->mean()) found = peer;
  }
  return found;
}

// What a lane would take to encode as much as a client does.
double lane_ns(const OpShape& shape, const CodecCost& cost) noexcept {
  return static_cast<double>(shape.bytes) * (1.0 - 1.0 / shape.nodes) * cost.encode_ns;
}

bool only_raw_allowed(const TensorPolicy& policy) noexcept {
  bool alone = true;
  for (CandidateIndex one = 1; one < policy.records().size(); ++one) {
    alone = alone && !policy.allowed(one);
  }
  return alone;
}

// Why what was in use may not be any more.
Reason reason_to_leave(const TensorPolicy& policy) noexcept {
  if (policy.guard().alarm() != Alarm::none) return Reason::alarm;
  return only_raw_allowed(policy) ? Reason::nothing_allowed : Reason::not_allowed_now;
}

}  // namespace

bool anything_measured(const TensorPolicy& policy) noexcept {
  return std::any_of(policy.records().begin() + 1, policy.records().end(),
                     [](const CandidateRecord& record) { return record.measured; });
}

std::string_view reason_text(Reason reason) noexcept {
  switch (reason) {
    case Reason::start:
      return "nothing is known yet";
    case Reason::fastest:
      return "the least predicted time";
    case Reason::alarm:
      return "an alarm restricts the loss";
    case Reason::not_allowed_now:
      return "what was in use is not allowed any more";
    case Reason::alarm_over:
      return "a bolder recipe is allowed again";
    case Reason::link_changed:
      return "the link delivers another rate";
    case Reason::near_enough:
      return "no other is faster by enough or for long enough";
    case Reason::load_changed:
      return "lanes take another time than before";
    case Reason::followed:
      return "the leading node has chosen it";
    case Reason::nothing_allowed:
      return "nothing else is allowed";
  }
  return "";
}

Choice all_by(const PairOfLegs& pair, Choice choice) {
  choice.broadcast = pair.broadcast;
  std::fill(choice.reduce.begin(), choice.reduce.end(), pair.reduce);
  return choice;
}

TensorPolicy::TensorPolicy(std::span<const Candidate> candidates, OpShape shape,
                           const Caution& caution, const PolicySettings& settings)
    : candidates_(candidates),
      shape_(shape),
      settings_(settings),
      guard_(caution.level, caution.bounds, caution.guard),
      hysteresis_(settings.switches),
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
  wire = std::min(wire, kMostWire);
  loss = std::min(loss, kMostLoss);
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
  if (shape_.has_client_blocks) reduce.encode_ns = broadcast.decode_ns = 0.0;
  const bool eager = shape_.takes_one_hop(pair.reduce == kRaw && pair.broadcast == kRaw);
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
                             const Outlook& outlook, double speedup) const noexcept {
  return model_ns(pair, circumstances, outlook, speedup) * common_fit_.value() *
             outlook.fits[pair.reduce] * outlook.fits[pair.broadcast] +
         client_ns(pair.reduce, circumstances);
}

double TensorPolicy::client_ns(CandidateIndex contributions,
                               const Circumstances& circumstances) const noexcept {
  if (!shape_.has_client_blocks) return 0.0;
  return client_coding_.ns(contributions, lane_ns(shape_, circumstances.costs[contributions]));
}

double TensorPolicy::expected_ns(const Pair& pair,
                                 const Circumstances& circumstances) const noexcept {
  return time_of(pair, circumstances, outlook(circumstances));
}

Prediction TensorPolicy::predicted(const Pair& pair,
                                   const Circumstances& circumstances) const noexcept {
  const RateWindow* link = slowest(circumstances);
  const double inbound = slowest_inbound(circumstances);
  double rate = link != nullptr ? link->mean() : circumstances.assumed_rate;
  if (inbound > 0.0) rate = std::min(rate, inbound);
  return parts(pair, circumstances).at(kNsPerSecond / rate);
}

// ---- Decision

// The best recipe for both legs, and then on each leg whatever is better beside it.
TensorPolicy::Ranking TensorPolicy::rank(const Circumstances& circumstances,
                                         const Outlook& outlook) const noexcept {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  Ranking ranking{{{}, kNever}, {{}, kNever}};
  const auto consider = [&](const Pair& pair) {
    if (!allowed(pair.reduce) || !allowed(pair.broadcast)) return;
    const double ns = time_of(pair, circumstances, outlook);
    if (ns < ranking.best.ns) ranking.best = {pair, ns};
    if (ns < ranking.other.ns && !(pair == kept_)) ranking.other = {pair, ns};
  };
  for (CandidateIndex one = 0; one < candidate_count(); ++one) consider({one, one});
  const bool apart = settings_.legs_apart && shape_.goes_to_owners_and_back();
  for (int round = 0; apart && round < 2; ++round) {
    const Pair before = ranking.best.pair;
    for (CandidateIndex one = 0; one < candidate_count(); ++one) {
      consider({one, before.broadcast});
      consider({before.reduce, one});
    }
    if (ranking.best.pair == before) break;
  }
  return ranking;
}

TensorPolicy::Pair TensorPolicy::take(const Pair& pair, Reason reason) {
  reason_ = reason;
  if (pair == kept_) return pair;
  ++switches_;
  hysteresis_.switched();
  // What is peculiar to both shows beside each other.
  const auto show_again = [this](CandidateIndex one) {
    records_[one].uses = std::min(records_[one].uses, settings_.uses_kept);
  };
  show_again(pair.reduce);
  show_again(pair.broadcast);
  if (kept_ == Pair{}) {
    show_again(kRaw);
    raw_checks_ = settings_.raw_checks;
  }
  return pair;
}

Reason TensorPolicy::watch_changes(const Circumstances& circumstances) noexcept {
  std::uint64_t changes = 0;
  for (const RateWindow* peer : circumstances.peers)
    changes += peer != nullptr ? peer->changes() : 0;
  std::uint32_t measured = 0;
  for (std::size_t i = 0; i < records_.size(); ++i) measured |= records_[i].measured ? 1u << i : 0;
  const bool alarmed = guard_.alarm() != Alarm::none;
  const bool link_changed = std::exchange(link_changes_, changes) != changes;
  const bool alarm_over = std::exchange(was_alarmed_, alarmed) && !alarmed;
  const bool more_measured = std::exchange(measured_, measured) != measured;
  const double load = circumstances.load;
  const bool load_changed = load > kLoadChange * load_ || load * kLoadChange < load_;
  if (load_changed) load_ = load;
  const bool world_changed = link_changed || load_changed;
  restless_ = kRestlessFade * restless_ + (world_changed ? 1.0 : 0.0);
  // Where the link or the load is another at every turn, that is how the world is.
  const bool news = world_changed && restless_ < settings_.restless;
  if (news || alarm_over || more_measured) hysteresis_.change();
  if (world_changed || alarm_over) changed_at_ = decisions_;
  return alarm_over     ? Reason::alarm_over
         : link_changed ? Reason::link_changed
         : load_changed ? Reason::load_changed
                        : Reason::fastest;
}

// Why what is in use stays so.
Reason TensorPolicy::reason_to_stay(const Timed& best, double gain) const noexcept {
  if (!anything_measured(*this)) return Reason::start;
  if (guard_.alarm() != Alarm::none) return Reason::alarm;
  if (only_raw_allowed(*this)) return Reason::nothing_allowed;
  return best.pair == kept_ || gain <= 0.0 ? Reason::fastest : Reason::near_enough;
}

TensorPolicy::Pair TensorPolicy::choose(const Circumstances& circumstances,
                                        const Outlook& outlook) {
  const Reason change = watch_changes(circumstances);
  const bool may_stay = allowed(kept_.reduce) && allowed(kept_.broadcast);
  if (led_ && may_stay) return kept_;
  const Ranking ranking = rank(circumstances, outlook);
  const Timed& best = ranking.best;
  if (!may_stay) return take(best.pair, reason_to_leave(*this));
  const double now = time_of(kept_, circumstances, outlook);
  const double raw = time_of({}, circumstances, outlook);
  const Gains gains{1.0 - ranking.other.ns / now, ranking.other.pair == Pair{}, 1.0 - raw / now};
  switch (hysteresis_.next(gains)) {
    case Move::to_best:
      return take(ranking.other.pair, change);
    case Move::to_raw:
      return take({}, change);
    case Move::stay:
      break;
  }
  return take(kept_, reason_to_stay(best, gains.best));
}

double TensorPolicy::expected_at(const Choice& choice, const Circumstances& circumstances,
                                 double bytes_per_s) const noexcept {
  const Pair pair{choice.reduce[0], choice.broadcast};
  return parts(pair, circumstances).at(kNsPerSecond / bytes_per_s).total_ns * common_fit_.value() *
         std::sqrt(fit_of(pair.reduce) * fit_of(pair.broadcast));
}

double TensorPolicy::peer_bytes(const Choice& choice) const noexcept {
  const OpLegs& legs = shape_.legs;
  const double bytes = static_cast<double>(shape_.bytes);
  const double share = legs.one_owner ? bytes : bytes / shape_.nodes;
  double least = kMostWire;
  for (const CandidateIndex one : choice.reduce) least = std::min(least, records_[one].wire);
  if (shape_.takes_one_hop(false)) return bytes * least;
  const double probed = static_cast<double>(choice.probe_chunks * shape_.chunk_bytes);
  return share * ((legs.reduce ? least : 0.0) +
                  (legs.broadcast ? records_[choice.broadcast].wire : 0.0)) +
         probed;
}

double TensorPolicy::largest_block(const Choice& choice) const noexcept {
  if (choice.probe_chunks > 0) return 1.0;
  double least = kMostWire;  // of contributions: each peer gets at least that
  for (const CandidateIndex one : choice.reduce) least = std::min(least, records_[one].wire);
  return std::max(shape_.legs.reduce ? least : 0.0,
                  shape_.legs.broadcast ? records_[choice.broadcast].wire : 0.0);
}

// A peer that the op does not wait for gains nothing from loss: it gets the safest recipe that does
// not make it, or the lane, the bottleneck. Links may all go through one interface, so that what
// one gets is taken from the others: their times are added up. Beside a slow moment of another node
// all links look free, so that only those count that are clearly faster than the slowest.
void TensorPolicy::spread(const Pair& pair, const Circumstances& circumstances) {
  choice_.broadcast = pair.broadcast;
  std::fill(choice_.reduce.begin(), choice_.reduce.end(), pair.reduce);
  if (candidates_[pair.reduce].lossless || choice_.reduce.size() < 2) return;
  if (!shape_.goes_to_owners_and_back()) return;
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
  guard_.heed();
  const Outlook now = outlook(circumstances);
  kept_ = choose(circumstances, now);
  const bool at_first = decisions_ <= settings_.switches.first_ops;
  const double share = at_first ? settings_.looking_at_first : settings_.looking;
  for (Allowance* const one : {&allowance_, &raw_allowance_}) {
    one->earn(time_of(kept_, circumstances, now), share);
  }
  choice_.probe_chunks = 0;
  Pair trial;
  choice_.trial = plan_trial(circumstances, now, kept_, trial);
  chosen_ = choice_.trial ? trial : kept_;
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
  last_measured_ns_ = op.ns > 0.0 ? op.ns + op.client_ns : 0.0;
  led_ = op.led;
  const Choice& choice = op.choice;
  if (choice.reduce.empty()) return;
  const Pair pair{choice.reduce[0], choice.broadcast};
  const bool uniform = std::all_of(choice.reduce.begin(), choice.reduce.end(),
                                   [&](CandidateIndex one) { return one == pair.reduce; });
  if (op.led && !choice.trial && uniform) kept_ = take(pair, Reason::followed);
  if (op.client_ns > 0.0 && uniform && choice.probe_chunks == 0) {
    client_coding_.observe(pair.reduce, op.client_ns,
                           lane_ns(shape_, circumstances.costs[pair.reduce]));
  }
  // Of choices that differ by node, or that probe, nothing is learnt: the model is of plain ones.
  // Nor is it early after a change, when some of what the model goes by is of the time before.
  const bool plain = op.alike && choice.probe_chunks == 0 && uniform;
  if (!plain || !(op.ns > 0.0) || decisions_ < changed_at_ + settings_.calm_after) return;
  learn_fit(pair, op.ns / model_ns(pair, circumstances, outlook(circumstances), 1.0));
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
  double rest = fit / (common_fit_.value() * own);
  if (rest <= kFitLimit && rest * kFitLimit >= 1.0) {
    first.far_ops = 0;
  } else {
    const std::int32_t side = rest > kFitLimit ? 1 : -1;
    first.far_ops = first.far_ops * side > 0 ? first.far_ops + side : side;
    if (first.far_ops * side < kNoChance) return;
    rest = side > 0 ? kFitLimit : 1.0 / kFitLimit;
  }
  const auto learn = [&](CandidateIndex candidate, double before) {
    CandidateRecord& record = records_[candidate];
    const double weight =
        settled ? 0.0 : std::max(kFitWeight, 1.0 / (2.0 + static_cast<double>(record.uses)));
    record.fit = std::clamp(before * std::pow(rest, weight), 1.0 / kMostFit, kMostFit);
    record.fit_op = guard_.ops();
    record.tried = true;
    ++record.uses;
  };
  learn(pair.reduce, reduce_fit);
  if (pair.broadcast != pair.reduce) learn(pair.broadcast, broadcast_fit);
  // What has not been used for long must show itself again.
  for (CandidateRecord& record : records_) {
    if (guard_.ops() - record.fit_op > std::uint64_t{kProbation} * 8) {
      record.uses = std::min(record.uses, settings_.uses_kept);
    }
  }
}

}  // namespace tern::tuner
