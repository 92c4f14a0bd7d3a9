// Why a choice was made, in words.

#include <fmt/format.h>

#include <algorithm>

#include "tuner/tuner.h"

namespace tern::tuner {
namespace {

std::string duration(double ns) {
  if (ns >= 1e9) return fmt::format("{:.2f} s", ns / 1e9);
  if (ns >= 1e6) return fmt::format("{:.1f} ms", ns / 1e6);
  return fmt::format("{:.0f} us", ns / 1e3);
}

constexpr const char* kUnusable =
    "not for this tensor: it must be exact, blocks may outgrow it, or its client has no encoder";

// The expected time of an op by a candidate, and by what is in use.
struct Times {
  double ns;
  double chosen_ns;
};

// Why a candidate is not in use.
std::string verdict_of(const TensorPolicy& policy, CandidateIndex index, bool lossless,
                       const Times& times) {
  const auto& [ns, chosen_ns] = times;
  const CandidateRecord& record = policy.records()[index];
  if (!record.measured) return "not measured on this tensor yet";
  if (!policy.allowed(index)) {
    return fmt::format("would leave out {:.4g} of the energy, allowed is {:.4g}",
                       record.cautious_loss(), policy.guard().bounds().loss);
  }
  const std::string cost =
      ns > chosen_ns ? fmt::format("{:.0f} % slower", 100.0 * (ns / chosen_ns - 1.0))
                     : fmt::format("{:.0f} % faster, but not by enough or for long enough",
                                   100.0 * (1.0 - ns / chosen_ns));
  return lossless ? cost + ", loses nothing" : cost;
}

// Empty: it is not in use.
std::string use_of(const PairOfLegs& used, CandidateIndex index) {
  if (used.reduce == used.broadcast) return used.reduce == index ? "in use" : "";
  if (used.reduce == index) return "in use for contributions";
  return used.broadcast == index ? "in use for results" : "";
}

}  // namespace

std::string Tuner::choice_text(const Choice& choice) const {
  const auto& reduce = choice.reduce;
  const auto name = [this](CandidateIndex one) { return candidates_[one].recipe; };
  const bool same = std::all_of(reduce.begin(), reduce.end(),
                                [&](CandidateIndex one) { return one == reduce[0]; });
  if (same && !reduce.empty() && reduce[0] == choice.broadcast) return name(choice.broadcast);
  std::string out;
  for (std::size_t i = 0; i < reduce.size() && (i == 0 || !same); ++i) {
    out += (i == 0 ? "" : "|") + name(reduce[i]);
  }
  return out + " -> " + name(choice.broadcast);
}

Tuner::TensorView Tuner::view(TensorKey key) const {
  const Tensor& tensor = tensors_.at(key);
  const TensorPolicy& policy = *tensor.policy;
  const Circumstances now = circumstances(tensor);
  const ErrorGuard& guard = policy.guard();
  TensorView view;
  view.name = tensor.info.name;
  view.operation = tensor.operation;
  view.level = tensor.info.bounds ? "bounds" : std::string(level_name(tensor.info.level));
  view.recipe = choice_text(policy.choice());
  view.alarm = alarm_text(guard.alarm());
  view.bound_loss = guard.bounds().loss;
  view.bound_residual = guard.bounds().residual;
  view.residual = guard.residual_ratio();
  view.measured_ns = policy.last_measured_ns();
  view.ops = policy.ops();
  view.switches = policy.switches();
  view.alarms = guard.alarms();
  for (const RateWindow* peer : now.peers) {
    if (!peer->known()) continue;
    view.rate = view.rate == 0.0 ? peer->mean() : std::min(view.rate, peer->mean());
  }
  const PairOfLegs used{policy.contributions(), policy.choice().broadcast};
  const std::string kept = choice_text(all_by(policy.kept(), policy.choice()));
  const double chosen_ns = policy.expected_ns(used, now);
  const Prediction chosen = policy.predicted(used, now);
  view.bottleneck = chosen.wire_ns > chosen.work_ns ? "the link" : "the lane";
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    const auto index = static_cast<CandidateIndex>(i);
    const CandidateRecord& record = policy.records()[i];
    const Prediction prediction = policy.predicted(index, now);
    CandidateView one;
    one.recipe = candidates_[i].recipe;
    one.allowed = policy.allowed(index);
    one.measured = record.measured;
    one.tried = record.tried;
    one.predicted_ns = prediction.total_ns + policy.client_ns(index, now);
    one.work_ns = prediction.work_ns;
    one.wire_ns = prediction.wire_ns;
    one.client_ns = policy.client_ns(index, now);
    one.measured_ns = record.tried ? policy.expected_ns(index, now) : 0.0;
    one.ratio = record.wire > 0.0 ? 1.0 / record.wire : 0.0;
    one.loss = record.loss;
    one.verdict = use_of(used, index);
    if (one.verdict.empty() && policy.choice().trial && !use_of(policy.kept(), index).empty()) {
      one.verdict = "in use again after the trial";
    }
    if (one.verdict.empty() && (tensor.info.unusable >> i & 1) != 0) one.verdict = kUnusable;
    if (one.verdict.empty()) {
      one.verdict = verdict_of(policy, index, candidates_[i].lossless,
                               {policy.expected_ns(index, now), chosen_ns});
    }
    view.candidates.push_back(std::move(one));
  }
  // The policy's reason is that of what it keeps.
  const std::string why = policy.choice().trial ? "a trial, after which it is " + kept + " again"
                                                : std::string(reason_text(policy.reason()));
  view.reason =
      fmt::format("{}: about {} an operation, {} for raw; the bottleneck is {}", why,
                  duration(chosen_ns), duration(policy.expected_ns(kRaw, now)), view.bottleneck);
  return view;
}

}  // namespace tern::tuner
