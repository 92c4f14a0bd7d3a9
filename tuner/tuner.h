#pragma once

// The tuner: for each tensor the recipe that is predicted to be fastest among those that its level
// allows. Pure policy: no thread, no clock, no I/O; for given calls the answers are the same.
// Source of the break-even algebra and of the shadow measurement: docs/tuner.md.
//
// Threads: one at a time. It allocates; it is not for lanes.

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "tuner/candidate.h"
#include "tuner/choice_log.h"
#include "tuner/codec_speeds.h"
#include "tuner/cost_model.h"
#include "tuner/drift.h"
#include "tuner/lane_model.h"
#include "tuner/level.h"
#include "tuner/rate_window.h"
#include "tuner/tensor_memory.h"
#include "tuner/tensor_policy.h"

namespace tern::tuner {

using TensorKey = std::uint64_t;  // the caller's
using PeerKey = std::string;      // what stays the same across a restart: the peer's address

struct TensorInfo {
  std::string name;  // what stays the same across a restart
  OpShape shape;
  Level level = Level::balanced;
  std::optional<Bounds> bounds;  // instead of the level's
  std::uint32_t unusable = 0;    // candidates that the tensor cannot have, as bits
  std::vector<PeerKey> peers;    // nodes - 1, in the order of Choice::reduce
};

// An op, or one lane's part of it, has ended.
struct OpMeasurement {
  SentOp op;
  // What the lane itself measured of the choice, for the bytes that it encoded or decoded; 0:
  // nothing.
  std::uint64_t encoded_bytes = 0;
  double encode_ns = 0.0;
};

struct Settings {
  PolicySettings policy;
  GuardSettings guard;
};

class Tuner {
 public:
  // REQUIRES: 1 .. kMaxCandidates of them, raw first.
  explicit Tuner(std::vector<Candidate> candidates, Settings settings = {});
  ~Tuner();
  Tuner(const Tuner&) = delete;
  Tuner& operator=(const Tuner&) = delete;

  std::span<const Candidate> candidates() const noexcept { return candidates_; }

  void add_tensor(TensorKey key, TensorInfo info);
  void remove_tensor(TensorKey key);
  bool has_tensor(TensorKey key) const noexcept { return tensors_.contains(key); }
  // The kind of operation that the tensor is used by; until then an all_reduce is assumed. What was
  // learnt stays.
  void set_operation(TensorKey key, const std::string& name, const OpLegs& legs);
  // Another level or bounds from the next op on; what was learnt stays.
  void set_bounds(TensorKey key, Level level, std::optional<Bounds> bounds);

  // How the tensor's next op is sent. REQUIRES: has_tensor(key).
  const Choice& decide(TensorKey key);

  void observe_sample(TensorKey key, const SampleMeasurement& sample);
  void observe_op(TensorKey key, const OpMeasurement& measured);
  // What a rate shows that was read after that op. `limited`: its carrier says that the link was
  // not full.
  Evidence evidence(TensorKey key, const SentOp& op, double bytes_per_s, bool limited) const;
  void observe_rate(const PeerKey& peer, double bytes_per_s, Evidence evidence);
  void observe_rate(const PeerKey& peer, double bytes_per_s, bool limited) {
    observe_rate(peer, bytes_per_s, limited ? Evidence::limited : Evidence::full);
  }
  // What the peer says it delivers to us, how long an answer takes, and how much longer it decodes
  // than we do.
  void observe_peer(const PeerKey& peer, double inbound_bytes_per_s, double round_trip_ns,
                    double decode_strain = 1.0);
  void observe_lane(const LaneMeasurement& lane);
  // Speed of a candidate on values of no tensor, measured before there are any.
  void calibrate(const SampleMeasurement& sample);

  // ---- Why (explain.cc) ----
  struct CandidateView {
    std::string recipe;
    bool allowed = false, measured = false, tried = false;
    double predicted_ns = 0.0, work_ns = 0.0, wire_ns = 0.0;
    double client_ns = 0.0;    // of the node's client, before the op
    double measured_ns = 0.0;  // what ops took, if it was in use: predicted by the model, corrected
    double ratio = 1.0, loss = 0.0;
    std::string verdict;  // why it is used, or not
  };
  struct TensorView {
    std::string name, level, recipe, reason, alarm, bottleneck;
    std::string operation;  // empty: none yet
    double bound_loss = 0.0, bound_residual = 0.0, residual = 0.0, rate = 0.0, measured_ns = 0.0;
    std::uint64_t ops = 0, switches = 0, alarms = 0;
    std::vector<CandidateView> candidates;
  };
  TensorView view(TensorKey key) const;
  std::string choice_text(const Choice& choice) const;
  const TensorPolicy& policy(TensorKey key) const;
  // As TensorPolicy::exclude.
  void exclude(TensorKey key, std::uint32_t candidates);

  // ---- Across a restart (memory.cc) ----
  // All at once. Who has others to serve writes a MemoryText.
  nlohmann::json remember() const;
  // Nothing of a damaged memory is taken. Of more than kMostRecalled tensors the longest unused
  // ones are left out.
  Status recall(const nlohmann::json& memory);

 private:
  friend class MemoryText;
  static constexpr int kMemoryVersion = 1;  // of the document

  // Tensors that are not declared. Of a recalled memory more may be: those that were declared when
  // it was written are likely to be so again.
  static constexpr std::size_t kMostRemembered = 4'096;
  static constexpr std::size_t kMostRecalled = 65'536;

  static constexpr std::size_t kMostPeers = 4'096;

  struct Peer {
    std::uint32_t tensors = 0;  // that go there
    std::uint64_t used = 0;     // by which of uses_
    RateWindow window;
    double inbound = 0.0;
    double round_trip_ns = 0.0;
    double decode_strain = 1.0;
  };
  struct Tensor {
    TensorInfo info;
    std::string operation;
    std::size_t size_class = 0;
    std::unique_ptr<TensorPolicy> policy;
    std::vector<Peer*> peers;
    // From one lane to the other, wake-ups included, as ops in one hop show; 0: not known.
    double hop_ns = 0.0;
  };
  void learn_coding(const Tensor& tensor, const OpMeasurement& measured);
  void learn_passage(const Tensor& tensor, const SentOp& op);
  void learn_hop(Tensor& tensor, const SentOp& op) const;
  Peer& meet(const PeerKey& key);
  // Fills costs_, peers_ and inbound_, to which the answer refers.
  Circumstances circumstances(const Tensor& tensor) const;

  std::vector<Candidate> candidates_;
  Settings settings_;
  CodecSpeeds speeds_;
  LaneModel lane_;
  Drift load_;  // time that lanes take by what they take on cores of their own
  std::map<PeerKey, Peer> peers_;
  std::uint64_t uses_ = 0;  // of peers by tensors
  std::map<TensorKey, Tensor> tensors_;
  TensorMemory remembered_{kMostRemembered};
  mutable std::vector<CodecCost> costs_;
  mutable std::vector<const RateWindow*> windows_;
  mutable std::vector<double> inbound_;
};

}  // namespace tern::tuner
