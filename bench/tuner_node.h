#pragma once

// A node of a simulated run: its tuner, and what the daemon would measure for it.

#include <cstdint>
#include <deque>
#include <string>

#include "bench/tuner_draws.h"
#include "bench/tuner_hostility.h"
#include "bench/tuner_world.h"
#include "tuner/tuner.h"

namespace tern::bench {

struct NodeSetting {
  tuner::Level level = tuner::Level::balanced;
  tuner::Settings tuner;
  Instruments instruments;
  std::size_t self = 0;  // 0 leads
};

// An op as a node lives through it.
struct LivedOp {
  std::size_t number = 0;
  const tuner::Choice& choice;
  const tuner::Choice& other;  // the other node's
  const WorldState& state;
  double ns = 0.0;
  const NodeOutcome& outcome;
  double inbound = 0.0;  // bytes per second that come from the other node, as that one says
  double norm = 1.0;     // of the gradient
};

class TunerNode {
 public:
  TunerNode(TunerWorld& world, const NodeSetting& setting);

  // The first measurements, of no tensor's values; their speeds are off by up to a third.
  void calibrate(Draws& draws);

  tuner::Choice decide() { return tuner_.decide(kTensor); }
  // As the leading node sends, if this one may.
  tuner::Choice follow(const tuner::Choice& lead);
  void observe(const LivedOp& op, Draws& draws);

  const tuner::TensorPolicy& policy() const { return tuner_.policy(kTensor); }
  double delivered() const { return window_.mean(); }
  // The choice's true loss at this op, against what was allowed when it was made.
  bool loses_too_much(const tuner::Choice& choice, std::size_t op) const;

 private:
  struct Rate {
    double bytes_per_s = 0.0;
    tuner::Evidence evidence = tuner::Evidence::limited;
  };
  static constexpr tuner::TensorKey kTensor = 1;

  double loss(tuner::CandidateIndex candidate, std::size_t op) const;
  tuner::SampleMeasurement sample(tuner::CandidateIndex candidate, std::size_t op,
                                  Draws& draws) const;
  void observe_rate(const LivedOp& op, const tuner::SentOp& sent, Draws& draws);
  double clock() const { return setting_.instruments.clock[setting_.self]; }
  double read_clock(double ns, Draws& draws) const;
  void measure_in_shadow(const LivedOp& op, Draws& draws);

  TunerWorld& world_;
  NodeSetting setting_;
  std::string peer_;
  tuner::Tuner tuner_;
  tuner::RateWindow window_;  // what this node would tell others
  std::deque<Rate> rates_;    // read, but of ops before
  bool led_ = false;
  double residual_ = 0.0;
  double busy_ns_ = 0.0;
  double shadow_ns_ = 0.0;
  double now_ns_ = 0.0;
  double next_sample_ns_ = 0.0;
};

}  // namespace tern::bench
