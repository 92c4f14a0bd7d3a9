// When a policy looks at what it does not use: other recipes, and the link that they would have.

#include <algorithm>
#include <cmath>

#include "tuner/tensor_policy.h"

namespace tern::tuner {
namespace {

constexpr std::uint32_t kHastyProbes = 3;
constexpr double kShowsLink = 0.25;  // of a chunk: blocks that show what the link does
// So many times faster: what a link could be that has not been full for a while, and what it may
// well be.
constexpr double kHidden = 1000.0;
constexpr double kPerhaps = 2.0;

// How far off the prediction of a candidate may be. It grows for ever, so that nothing is given up.
double doubt_of(const CandidateRecord& record, const PolicySettings& settings,
                std::uint64_t ops) noexcept {
  const double age = static_cast<double>(ops - record.fit_op);
  const double known = std::max(settings.tried_doubt, settings.untried_doubt / (1.0 + record.uses));
  const double at_first = record.tried ? known : settings.untried_doubt;
  return 1.0 - (1.0 - at_first) * std::exp2(-age / settings.doubt_half_life);
}

}  // namespace

// What of the present time an op might take by that candidate, for all that is known. A link that
// has not been full may well be faster than what has passed there, which raw gains most by.
double TensorPolicy::hoped_share(CandidateIndex candidate, const Pair& current,
                                 const Circumstances& circumstances,
                                 const Outlook& outlook) const noexcept {
  const bool hidden = outlook.link != nullptr && outlook.link->limited_since() > 0;
  const double speedup = candidate == kRaw && hidden ? kPerhaps : 1.0;
  return time_of({candidate, candidate}, circumstances, outlook, speedup) *
         (1.0 - doubt_of(records_[candidate], settings_, guard_.ops())) /
         time_of(current, circumstances, outlook, speedup);
}

// The model may be wrong of a recipe that is not in use. Whatever could be the fastest for all that
// is known is used for one op now and then, if the allowance covers what that loses if the model is
// right. All nodes try the same recipe at the same op, as the leading one says. Raw is what
// everything is held against: some ops by it show whether it was right to leave it.
bool TensorPolicy::plan_trial(const Circumstances& circumstances, const Outlook& outlook,
                              const Pair& current, Pair& trial) {
  const std::uint64_t since = decisions_ - tried_at_;
  const bool at_first = decisions_ <= settings_.switches.first_ops;
  const bool due = since >= (at_first ? settings_.check_every : settings_.trial_every);
  const bool check = raw_checks_ > 0 && !(current == Pair{}) && since >= settings_.check_every;
  if (led_ || settings_.trial_every == 0 || !(due || check)) return false;
  if (!anything_measured(*this) || decisions_ < changed_at_ + settings_.calm_after) return false;
  const double now = time_of(current, circumstances, outlook);
  const double longest = (1.0 + settings_.beyond_raw) * time_of({}, circumstances, outlook);
  double best = 1.0;
  double loss = 0.0;
  for (CandidateIndex one = 0; one < candidate_count(); ++one) {
    const Pair pair{one, one};
    const bool in_use = one == current.reduce || one == current.broadcast;
    if (pair == current || !allowed(one) || (one != kRaw && (in_use || !due))) continue;
    const double ns = time_of(pair, circumstances, outlook);
    const Allowance& allowance = one == kRaw ? raw_allowance_ : allowance_;
    if (ns > longest || !allowance.covers(ns - now)) continue;
    const double hoped =
        one == kRaw && check ? 0.0 : hoped_share(one, current, circumstances, outlook);
    if (hoped >= best) continue;
    best = hoped;
    loss = ns - now;
    trial = pair;
  }
  if (best == 1.0) return false;
  if (trial == Pair{} && raw_checks_ > 0) --raw_checks_;
  (trial == Pair{} ? raw_allowance_ : allowance_).spend(loss);
  tried_at_ = decisions_;
  return true;
}

// Not much of the op.
std::uint8_t TensorPolicy::probe_length() const noexcept {
  const std::uint64_t chunks = shape_.bytes / shape_.nodes / shape_.chunk_bytes;
  return static_cast<std::uint8_t>(std::min<std::uint64_t>(settings_.probe_chunks, chunks / 2));
}

// Whether a far better link would make another recipe the fastest.
bool TensorPolicy::would_change(const Circumstances& circumstances, const Outlook& outlook,
                                const Pair& current) const noexcept {
  const double enough =
      (1.0 - settings_.switches.gain) * time_of(current, circumstances, outlook, kHidden);
  for (CandidateIndex one = 0; one < candidate_count(); ++one) {
    if (!allowed(one)) continue;
    if (time_of({one, one}, circumstances, outlook, kHidden) < enough) return true;
  }
  return false;
}

// Whether the op's first contributions travel raw, to see the link. That is cheap exactly where it
// is needed: an op that does not show its link leaves it idle while the lane works, and what is
// sent raw at its beginning travels in that time (ADR 38). So it costs what does not fit in there,
// which the allowance must cover, unless there is a sign that the link has become faster.
bool TensorPolicy::plan_probe(const Circumstances& circumstances, const Outlook& outlook,
                              const Pair& current) {
  const RateWindow* link = outlook.link;
  if (current.reduce == kRaw || probe_length() < 1 || link == nullptr) return false;
  const Prediction now = predicted(current, circumstances);
  const bool seen = link->limited_since() == 0 || largest_block(choice_) >= kShowsLink;
  const bool sign = link->may_be_faster();
  if (!sign) hasty_probes_ = 0;
  if (seen && !sign) return false;
  const bool hasty = sign && hasty_probes_ < kHastyProbes;
  if (!hasty && decisions_ < probed_at_ + settings_.probe_every) return false;
  if (!would_change(circumstances, outlook, current)) return false;
  const double bytes = static_cast<double>(probe_length() * shape_.chunk_bytes);
  const double wire_ns =
      bytes * (1.0 - records_[current.reduce].wire) / link->mean() * kNsPerSecond;
  const double cost = std::max(0.0, wire_ns - std::max(0.0, now.work_ns - now.wire_ns));
  if (!hasty && !allowance_.covers(cost)) return false;
  if (hasty) ++hasty_probes_;
  allowance_.spend(cost);
  probed_at_ = decisions_;
  return true;
}

}  // namespace tern::tuner
