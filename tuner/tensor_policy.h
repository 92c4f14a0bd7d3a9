#pragma once

// The choice for one tensor, op by op.

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tuner/allowance.h"
#include "tuner/candidate.h"
#include "tuner/client_coding.h"
#include "tuner/cost_model.h"
#include "tuner/drift.h"
#include "tuner/error_guard.h"
#include "tuner/hysteresis.h"
#include "tuner/rate_window.h"

namespace tern::tuner {

// How the next op is sent. Blocks say how they are encoded, so that no receiver need know it.
struct Choice {
  std::vector<CandidateIndex> reduce;  // contributions, by peer
  CandidateIndex broadcast = kRaw;     // results: the owner encodes them once, for all
  // So many of the op's first contributions to each peer travel raw, to see what the link can do.
  std::uint8_t probe_chunks = 0;
  bool trial = false;  // of one op, by a recipe that is not thought to be the fastest

  friend bool operator==(const Choice&, const Choice&) = default;
};

// One recipe for all contributions and one for results.
struct PairOfLegs {
  CandidateIndex reduce = kRaw;
  CandidateIndex broadcast = kRaw;

  friend bool operator==(const PairOfLegs&, const PairOfLegs&) = default;
};
Choice all_by(const PairOfLegs& pair, Choice choice);

enum class Reason : std::uint8_t {
  start,            // nothing is known yet
  fastest,          // the least predicted time
  near_enough,      // another is predicted to be faster, but not by enough or for long enough
  alarm,            // an alarm allows no faster one at present
  not_allowed_now,  // what was in use is not allowed any more, and there is no alarm
  alarm_over,       // a bolder recipe is allowed again
  link_changed,     // the fastest since the link delivers another rate
  load_changed,     // the fastest since lanes take longer, or no longer do
  nothing_allowed,  // but raw
  followed,         // the leading node has chosen it
};
std::string_view reason_text(Reason reason) noexcept;

struct PolicySettings {
  SwitchSettings switches;
  bool legs_apart = true;         // a recipe for each leg
  std::uint32_t trial_every = 8;  // ops, at least; 0: there are none
  // Share of the time that trials and probes together may lose; at first there is all to learn.
  double looking = 0.004;
  double looking_at_first = 0.05;
  // How far off the prediction of a recipe may be that was never used, and of one that just was; and
  // ops until half of that certainty is gone.
  double untried_doubt = 0.25;
  double tried_doubt = 0.03;
  double doubt_half_life = 2048.0;
  std::uint32_t uses_kept = 3;    // that still count when a recipe has not been used for long
  std::uint32_t raw_checks = 3;   // trials of raw after it was left
  std::uint32_t check_every = 3;  // ops
  double beyond_raw = 0.5;        // no trial takes so much longer than raw, as a share of its time
  double restless = 3.0;          // recent changes, from which on they are how the world is
  std::uint32_t calm_after = 4;   // ops after a change, of which measurements are early
  std::uint32_t probe_every = 4;  // ops, at least, without a sign
  std::uint8_t probe_chunks = 1;
  double slack = 0.02;  // a safer recipe for a peer that is not the bottleneck
};

// Of CandidateRecord::wire, where the smallest blocks are mostly header, and of its loss.
inline constexpr double kMostWire = 8.0;
inline constexpr double kMostLoss = 1e6;

// What the tuner knows of a candidate and this tensor.
struct CandidateRecord {
  bool measured = false;     // on this tensor's values
  double wire = 1.0;         // bytes of a block by those of its elements
  double loss = 0.0;         // share of the energy that an encoding leaves out
  double loss_spread = 0.0;  // mean distance of samples from it
  double fit = 1.0;          // measured time of ops by predicted, by that of the others
  std::uint64_t fit_op = 0;  // the last op that was measured
  bool tried = false;
  std::uint32_t uses = 0;    // recent measured ops
  std::int32_t far_ops = 0;  // in a row, whose results were sent so; below 0: they were faster

  // The loss of whole ops is the mean over their chunks; with some ten samples that count, it is
  // hardly above this. (1.6 standard errors, 1.25 mean distances to a standard deviation.)
  double cautious_loss() const noexcept { return loss + 0.6 * loss_spread; }
};

// How an op was sent, and what came of it.
struct SentOp {
  Choice choice;
  bool led = false;   // the choice was the leading node's
  bool alike = true;  // all nodes sent by the same recipe, as far as is known
  double ns = 0.0;    // from the grant to the end; 0: not known
  ErrorSample error;
  double client_ns = 0.0;  // before that: the node's client has encoded
};

// What the policy is told before each op.
struct Circumstances {
  std::span<const RateWindow* const> peers;  // what is delivered to each; null: nothing known
  // What peers say they deliver to us: nobody gains by being faster than these. 0: unknown.
  std::span<const double> inbound;
  std::span<const CodecCost> costs;  // by candidate; `wire` is not used
  LaneCost lane;
  double load = 1.0;  // how much longer lanes take than on cores of their own
  double round_trip_ns = 0.0;
  double assumed_rate = 1.25e9;  // bytes per second, while nothing is known
};

// How much a tensor may lose, and how that is watched.
struct Caution {
  Level level;
  Bounds bounds;
  GuardSettings guard;
};

class TensorPolicy {
 public:
  TensorPolicy(std::span<const Candidate> candidates, OpShape shape, const Caution& caution,
               const PolicySettings& settings);

  void set_bounds(Level level, Bounds bounds) noexcept { guard_.set_bounds(level, bounds); }

  // What operations on the tensor are of from now on.
  void set_legs(const OpLegs& legs) noexcept { shape_.legs = legs; }

  // Candidates that the tensor cannot have from now on, as bits.
  void exclude(std::uint32_t candidates) noexcept { excluded_ |= candidates; }

  // For the next op. An op waits for all of its nodes, so that one of them, the group's first,
  // leads: as long as this node's ops are led, it keeps to what they were sent by.
  const Choice& decide(const Circumstances& circumstances);

  void observe_sample(CandidateIndex candidate, double wire, double loss) noexcept;
  // An op has ended, so long after it was granted.
  void observe_op(const SentOp& op, const Circumstances& circumstances) noexcept;

  const Choice& choice() const noexcept { return choice_; }
  // Of the choice, what goes to peers that the op waits for.
  CandidateIndex contributions() const noexcept { return chosen_.reduce; }
  // What is used after a trial; without one, what is in use.
  const PairOfLegs& kept() const noexcept { return kept_; }
  Reason reason() const noexcept { return reason_; }
  const ErrorGuard& guard() const noexcept { return guard_; }
  const OpShape& shape() const noexcept { return shape_; }
  std::span<const CandidateRecord> records() const noexcept { return records_; }
  std::span<CandidateRecord> records() noexcept { return records_; }
  bool allowed(CandidateIndex candidate) const noexcept;
  // Of an op that all nodes send so, as of the last decision; without a client's encoding.
  Prediction predicted(const PairOfLegs& pair, const Circumstances& circumstances) const noexcept;
  Prediction predicted(CandidateIndex one, const Circumstances& circumstances) const noexcept {
    return predicted(PairOfLegs{one, one}, circumstances);
  }
  // The same corrected by what ops took, with a client's encoding before it.
  double expected_ns(const PairOfLegs& pair, const Circumstances& circumstances) const noexcept;
  double expected_ns(CandidateIndex one, const Circumstances& circumstances) const noexcept {
    return expected_ns(PairOfLegs{one, one}, circumstances);
  }
  // Of an op that is sent so on a link of that rate; without a client's encoding.
  double expected_at(const Choice& choice, const Circumstances& circumstances,
                     double bytes_per_s) const noexcept;
  // What of an op goes to each peer, and its largest blocks by what a chunk has.
  double peer_bytes(const Choice& choice) const noexcept;
  double largest_block(const Choice& choice) const noexcept;
  // Of the node's client, before an op that is sent so; 0: it has none that does so.
  double client_ns(CandidateIndex contributions, const Circumstances& circumstances) const noexcept;
  double last_measured_ns() const noexcept { return last_measured_ns_; }
  std::uint64_t switches() const noexcept { return switches_; }
  std::uint64_t ops() const noexcept { return guard_.ops(); }

 private:
  using Pair = PairOfLegs;
  CandidateIndex candidate_count() const noexcept {
    return static_cast<CandidateIndex>(candidates_.size());
  }
  // What does not depend on the pair, once for each decision.
  struct Outlook {
    const RateWindow* link = nullptr;  // the slowest; null: nothing is known
    std::size_t count = 0;             // of what it has delivered
    std::array<double, RateWindow::kSamples> weights{};
    std::array<double, RateWindow::kSamples> ns_per_byte{};
    std::array<double, kMaxCandidates> fits{};  // square root of fit_of
  };

  Outlook outlook(const Circumstances& circumstances) const noexcept;
  OpParts parts(const Pair& pair, const Circumstances& circumstances) const noexcept;
  // On a link that is so many times faster.
  double time_of(const Pair& pair, const Circumstances& circumstances, const Outlook& outlook,
                 double speedup = 1.0) const noexcept;
  double model_ns(const Pair& pair, const Circumstances& circumstances, const Outlook& outlook,
                  double speedup) const noexcept;
  double fit_of(CandidateIndex candidate) const noexcept;
  struct Timed {
    Pair pair;
    double ns = 0.0;
  };
  struct Ranking {
    Timed best;
    Timed other;  // the best that is not kept
  };
  Ranking rank(const Circumstances& circumstances, const Outlook& outlook) const noexcept;
  // What is another than before the last op, if anything is.
  Reason watch_changes(const Circumstances& circumstances) noexcept;
  Reason reason_to_stay(const Timed& best, double gain) const noexcept;
  Pair choose(const Circumstances& circumstances, const Outlook& outlook);
  Pair take(const Pair& pair, Reason reason);
  void learn_fit(const Pair& pair, double fit) noexcept;
  double hoped_share(CandidateIndex candidate, const Pair& current,
                     const Circumstances& circumstances, const Outlook& outlook) const noexcept;
  bool plan_trial(const Circumstances& circumstances, const Outlook& outlook, const Pair& current,
                  Pair& trial);
  std::uint8_t probe_length() const noexcept;
  bool would_change(const Circumstances& circumstances, const Outlook& outlook,
                    const Pair& current) const noexcept;
  bool plan_probe(const Circumstances& circumstances, const Outlook& outlook, const Pair& current);
  void spread(const Pair& pair, const Circumstances& circumstances);

  std::span<const Candidate> candidates_;
  OpShape shape_;
  PolicySettings settings_;
  ErrorGuard guard_;
  Hysteresis hysteresis_;
  Allowance allowance_;
  // Of trials of raw, which cannot make anything slower than raw.
  Allowance raw_allowance_{4.0};
  std::uint32_t excluded_ = 0;
  std::vector<CandidateRecord> records_;
  bool led_ = false;  // the last op was sent as the leading node chose
  Bias common_fit_;   // measured time of ops by predicted, of whatever was in use
  ClientCoding client_coding_;
  Choice choice_;
  Pair kept_;    // the choice, without trials
  Pair chosen_;  // and with them
  Reason reason_ = Reason::start;
  std::uint64_t decisions_ = 0;
  std::uint64_t changed_at_ = 0;  // the world, or what is allowed
  std::uint64_t tried_at_ = 0;
  std::uint32_t raw_checks_ = 0;  // trials of raw that are due, because it is not in use any more
  std::uint64_t probed_at_ = 0;
  std::uint32_t hasty_probes_ = 0;  // in a row
  std::uint64_t link_changes_ = 0;
  double load_ = 1.0;           // at the last change
  std::uint32_t measured_ = 0;  // candidates, as bits
  bool was_alarmed_ = false;
  double restless_ = 0.0;  // how many recent changes there were
  std::uint64_t switches_ = 0;
  double last_measured_ns_ = 0.0;
};

// Of a candidate that is not raw.
bool anything_measured(const TensorPolicy& policy) noexcept;

}  // namespace tern::tuner
