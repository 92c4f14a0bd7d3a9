#pragma once

// A policy with a link and seven candidates that cost and lose about what the real ones do.

#include <initializer_list>
#include <vector>

#include "tuner/tensor_policy.h"

namespace tern::tuner {

enum : CandidateIndex { kLossless = 1, kBf16, kInt8, kInt4, kThreeLc, kSparse };

inline constexpr double kGbit = 125e6;  // bytes per second
inline constexpr ErrorSample kCalm{{1.0, 0.0, 1000}, {}, false};
inline constexpr ErrorSample kNotFinite{{1.0, 0.0, 1000}, {}, true};

// Without trials, whose ops tests would otherwise have to step over.
inline PolicySettings quiet() {
  PolicySettings settings;
  settings.trial_every = 0;
  return settings;
}

struct RigSetup {
  double gbit = 1.0;  // of each link
  std::uint32_t nodes = 2;
  std::uint64_t bytes = 64 << 20;
  bool has_client_blocks = false;
  PolicySettings settings = quiet();
  GuardSettings guard = {0, 64, 4.0};
};

struct Rig {
  explicit Rig(Level level, const RigSetup& setup = {})
      : candidates(usual_candidates()), windows(setup.nodes - 1), policy([&] {
          OpShape shape;
          shape.bytes = setup.bytes;
          shape.nodes = setup.nodes;
          shape.eager_bytes = 64 << 10;
          shape.has_client_blocks = setup.has_client_blocks;
          return TensorPolicy(candidates, shape, {level, bounds_of(level), setup.guard},
                              setup.settings);
        }()) {
    for (RateWindow& window : windows) peers.push_back(&window);
    for (std::size_t peer = 0; peer < windows.size(); ++peer) set_rate(peer, setup.gbit);
  }

  void set_rate(std::size_t peer, double gbit) {
    for (int i = 0; i < 8; ++i) windows[peer].observe(gbit * kGbit, false);
  }

  void measure(CandidateIndex one) { policy.observe_sample(one, wires[one], losses[one]); }
  void measure_all() {
    for (std::size_t one = 1; one < candidates.size(); ++one) {
      measure(static_cast<CandidateIndex>(one));
    }
  }

  void slow_codecs(double factor) {
    for (std::size_t i = 1; i < costs.size(); ++i) {
      costs[i].encode_ns *= factor;
      costs[i].decode_ns *= factor;
    }
  }

  Circumstances now() const {
    Circumstances result;
    result.peers = peers;
    result.inbound = inbound;
    result.costs = costs;
    result.round_trip_ns = 50e3;
    return result;
  }

  const Choice& decide() { return policy.decide(now()); }
  // An op that takes as long as the model says, times a factor.
  Choice step(double factor = 1.0, const ErrorSample& error = kCalm) {
    Choice choice = decide();
    SentOp op;
    op.choice = choice;
    const PairOfLegs sent{choice.reduce.front(), choice.broadcast};
    op.ns = factor * policy.predicted(sent, now()).total_ns;
    if (!client_ns.empty()) op.client_ns = client_ns[sent.reduce];
    op.error = error;
    policy.observe_op(op, now());
    return choice;
  }
  // An op that is sent as another node chose.
  void step_led(CandidateIndex lead, bool trial = false) {
    SentOp op;
    op.choice = decide();
    op.choice.broadcast = lead;
    op.choice.trial = trial;
    std::fill(op.choice.reduce.begin(), op.choice.reduce.end(), lead);
    op.led = true;
    op.ns = policy.predicted(lead, now()).total_ns;
    op.error = kCalm;
    policy.observe_op(op, now());
  }

  std::vector<Candidate> candidates;
  std::vector<double> wires = {1.0, 0.85, 0.5, 0.25, 0.13, 0.02, 0.006};
  std::vector<double> losses = {0.0, 0.0, 2e-6, 1e-4, 0.03, 0.8, 0.99};
  std::vector<CodecCost> costs = {{0.0, 0.15, 1.0}, {0.4, 0.4, 1.0},  {0.15, 0.15, 1.0},
                                  {0.25, 0.2, 1.0}, {0.25, 0.2, 1.0}, {0.3, 0.1, 1.0},
                                  {0.25, 0.08, 1.0}};
  std::vector<double> client_ns;  // by candidate; empty: the lane encodes
  std::vector<RateWindow> windows;
  std::vector<const RateWindow*> peers;
  std::vector<double> inbound;  // told by the peers, in bytes per second
  TensorPolicy policy;
};

}  // namespace tern::tuner
