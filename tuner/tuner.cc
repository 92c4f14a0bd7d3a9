#include "tuner/tuner.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "base/check.h"

namespace tern::tuner {
namespace {

// Of a chunk: blocks as large as this show more of a link than a burst would.
constexpr double kLargeBlock = 0.25;
constexpr double kBeyondBursts = 256 << 10;  // bytes to a peer
constexpr double kMuchLonger = 2.0;
constexpr double kNews = 1.05;
constexpr double kAlone = 1.25;  // a load up to this is none

}  // namespace

Tuner::Tuner(std::vector<Candidate> candidates, Settings settings)
    : candidates_(std::move(candidates)), settings_(settings), speeds_(candidates_.size()) {
  TERN_CHECK(!candidates_.empty() && candidates_.size() <= kMaxCandidates);
  TERN_CHECK(candidates_[kRaw].recipe == "raw");
}

Tuner::~Tuner() = default;

void Tuner::add_tensor(TensorKey key, TensorInfo info) {
  TERN_CHECK(info.peers.size() + 1 == info.shape.nodes);
  Tensor tensor;
  tensor.size_class = CodecSpeeds::size_class(std::min(info.shape.bytes, info.shape.chunk_bytes));
  const Caution caution{info.level, info.bounds.value_or(bounds_of(info.level)), settings_.guard};
  tensor.policy =
      std::make_unique<TensorPolicy>(candidates_, info.shape, caution, settings_.policy);
  tensor.policy->exclude(info.unusable);
  for (const PeerKey& peer : info.peers) tensor.peers.push_back(&meet(peer));
  if (const TensorMemory::Records* const known = remembered_.use(info.name)) {
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      const auto record = known->find(candidates_[i].recipe);
      if (record != known->end()) tensor.policy->records()[i] = record->second;
    }
  }
  tensor.info = std::move(info);
  if (const auto before = tensors_.find(key); before != tensors_.end()) {
    for (Peer* const peer : before->second.peers) --peer->tensors;
  }
  tensors_.insert_or_assign(key, std::move(tensor));
}

void Tuner::remove_tensor(TensorKey key) {
  const auto found = tensors_.find(key);
  if (found == tensors_.end()) return;
  TensorMemory::Records& remembered = remembered_.renew(found->second.info.name);
  const auto records = found->second.policy->records();
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    CandidateRecord record = records[i];
    record.fit_op = 0;
    remembered[candidates_[i].recipe] = record;
  }
  for (Peer* const peer : found->second.peers) --peer->tensors;
  tensors_.erase(found);
}

// Addresses that never come back must not pile up: that of no tensor and longest unused makes room.
Tuner::Peer& Tuner::meet(const PeerKey& key) {
  if (peers_.size() >= kMostPeers && !peers_.contains(key)) {
    const auto is_used_later = [](const auto& one, const auto& other) {
      const Peer& a = one.second;
      const Peer& b = other.second;
      return std::tuple(a.tensors != 0, a.used) < std::tuple(b.tensors != 0, b.used);
    };
    const auto oldest = std::min_element(peers_.begin(), peers_.end(), is_used_later);
    if (oldest->second.tensors == 0) peers_.erase(oldest);
  }
  Peer& peer = peers_[key];
  ++peer.tensors;
  peer.used = ++uses_;
  return peer;
}

void Tuner::set_operation(TensorKey key, const std::string& name, const OpLegs& legs) {
  Tensor& tensor = tensors_.at(key);
  tensor.operation = name;
  tensor.info.shape.legs = legs;
  tensor.policy->set_legs(legs);
}

void Tuner::set_bounds(TensorKey key, Level level, std::optional<Bounds> bounds) {
  Tensor& tensor = tensors_.at(key);
  tensor.info.level = level;
  tensor.info.bounds = bounds;
  tensor.policy->set_bounds(level, bounds.value_or(bounds_of(level)));
}

const TensorPolicy& Tuner::policy(TensorKey key) const { return *tensors_.at(key).policy; }

void Tuner::exclude(TensorKey key, std::uint32_t candidates) {
  Tensor& tensor = tensors_.at(key);
  tensor.info.unusable |= candidates;
  tensor.policy->exclude(candidates);
}

// ---- What is known

Circumstances Tuner::circumstances(const Tensor& tensor) const {
  costs_.resize(candidates_.size());
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    costs_[i] = speeds_.on_lane(static_cast<CandidateIndex>(i), tensor.size_class, load_.value());
  }
  windows_.clear();
  inbound_.clear();
  double round_trip_ns = 0.0;
  double decode_strain = 1.0;  // of the slowest, for which all wait
  for (const Peer* peer : tensor.peers) {
    windows_.push_back(&peer->window);
    inbound_.push_back(peer->inbound);
    round_trip_ns = std::max(round_trip_ns, peer->round_trip_ns);
    decode_strain = std::max(decode_strain, peer->decode_strain);
  }
  for (CodecCost& cost : costs_) cost.decode_ns *= decode_strain;
  Circumstances now;
  now.peers = windows_;
  now.inbound = inbound_;
  now.costs = costs_;
  now.lane = {lane_.cost().byte_ns * load_.value(), lane_.cost().chunk_ns * load_.value()};
  now.load = load_.value();
  now.round_trip_ns = std::max(round_trip_ns, 2.0 * tensor.hop_ns);
  return now;
}

const Choice& Tuner::decide(TensorKey key) {
  Tensor& tensor = tensors_.at(key);
  return tensor.policy->decide(circumstances(tensor));
}

// ---- Observations

void Tuner::calibrate(const SampleMeasurement& sample) { speeds_.observe_shadow(sample); }

void Tuner::observe_sample(TensorKey key, const SampleMeasurement& sample) {
  speeds_.observe_shadow(sample);
  const auto found = tensors_.find(key);
  if (found == tensors_.end() || sample.bytes == 0 || sample.candidate == kRaw) return;
  found->second.policy->observe_sample(
      sample.candidate, static_cast<double>(sample.block_bytes) / static_cast<double>(sample.bytes),
      sample.loss);
}

// What a carrier calls a round trip is that of its packets. An op that needs one hop in place of
// four saves the wake-ups too, which for a small one are most of its time. The shortest
// recent time counts: the rest is how much later other ranks submit.
void Tuner::learn_hop(Tensor& tensor, const SentOp& op) const {
  constexpr double kForget = 1.02;
  const OpShape& shape = tensor.policy->shape();
  const CandidateIndex first = op.choice.reduce[0];
  const bool uniform = std::all_of(op.choice.reduce.begin(), op.choice.reduce.end(),
                                   [first](CandidateIndex one) { return one == first; });
  const bool raw = first == kRaw && op.choice.broadcast == kRaw;
  if (!uniform || !op.alike || !(op.ns > 0.0) || !shape.takes_one_hop(raw)) return;
  const Prediction model = tensor.policy->predicted(first, circumstances(tensor));
  const double hop = std::max(0.0, op.ns - (model.total_ns - model.fixed_ns));
  tensor.hop_ns = tensor.hop_ns == 0.0 ? hop : std::min(kForget * tensor.hop_ns, hop);
}

void Tuner::observe_op(TensorKey key, const OpMeasurement& measured) {
  const auto found = tensors_.find(key);
  if (found == tensors_.end()) return;
  Tensor& tensor = found->second;
  const Choice& choice = measured.op.choice;
  if (choice.reduce.size() != tensor.peers.size()) return;
  learn_hop(tensor, measured.op);
  learn_coding(tensor, measured);
  tensor.policy->observe_op(measured.op, circumstances(tensor));
  learn_passage(tensor, measured.op);
}

// What coding takes on a lane: what is peculiar to the candidate there, or that others use the core
// too, if it has been used before.
void Tuner::learn_coding(const Tensor& tensor, const OpMeasurement& measured) {
  const auto& reduce = measured.op.choice.reduce;
  const bool uniform = std::all_of(reduce.begin(), reduce.end(),
                                   [&](CandidateIndex one) { return one == reduce[0]; });
  // The lane has measured the encoding of both legs together.
  const CandidateIndex results = measured.op.choice.broadcast;
  const bool is_of_one =
      results == reduce[0] || results == kRaw || !tensor.info.shape.legs.broadcast;
  if (!uniform || !is_of_one || measured.encoded_bytes == 0) return;
  const LaneCoding coding{reduce[0], tensor.size_class,
                          measured.encode_ns / static_cast<double>(measured.encoded_bytes)};
  if (const double load = speeds_.load_of(coding); load > 0.0) load_.observe(load);
  speeds_.observe_lane(coding, load_.value());
}

// All that was sent has arrived when the op ends: every link is at least so fast, whatever its
// carrier says, and acknowledgements may be late.
void Tuner::learn_passage(const Tensor& tensor, const SentOp& op) {
  // Who owns nothing gets nothing.
  if (!(op.ns > 0.0) || !op.alike || tensor.info.shape.legs.one_owner) return;
  const double rate = tensor.policy->peer_bytes(op.choice) / op.ns * kNsPerSecond;
  for (Peer* const peer : tensor.peers) {
    // What is less than is known says nothing of the link.
    if (rate > kNews * peer->window.mean() && peer->window.known()) {
      peer->window.observe(rate, Evidence::limited);
    }
    if (peer->inbound > 0.0) peer->inbound = std::max(peer->inbound, rate);
  }
}

// Large blocks, more of them than a shaper lets through at once. If the op took much longer than it
// does on such a link, what passed was a burst after all.
Evidence Tuner::evidence(TensorKey key, const SentOp& op, double bytes_per_s, bool limited) const {
  if (!limited) return Evidence::full;
  const Tensor& tensor = tensors_.at(key);
  const TensorPolicy& policy = *tensor.policy;
  const bool large = policy.largest_block(op.choice) >= kLargeBlock &&
                     policy.peer_bytes(op.choice) >= kBeyondBursts && op.ns > 0.0;
  if (!large) return Evidence::limited;
  const double expected_ns = policy.expected_at(op.choice, circumstances(tensor), bytes_per_s);
  return op.ns < kMuchLonger * expected_ns ? Evidence::passed : Evidence::limited;
}

void Tuner::observe_rate(const PeerKey& peer, double bytes_per_s, Evidence evidence) {
  peers_[peer].window.observe(bytes_per_s, evidence);
}

void Tuner::observe_peer(const PeerKey& peer, double inbound_bytes_per_s, double round_trip_ns,
                         double decode_strain) {
  Peer& known = peers_[peer];
  known.inbound = inbound_bytes_per_s;
  known.round_trip_ns = round_trip_ns;
  known.decode_strain = decode_strain;
}

void Tuner::observe_lane(const LaneMeasurement& lane) {
  if (const double load = lane_.load_of(lane); load > 0.0) load_.observe(load);
  // What is near to a core of its own is taken for one, so that both are not learnt from the same.
  const double load = load_.value();
  lane_.learn(lane, load > kAlone || load * kAlone < 1.0 ? load : 1.0);
}

}  // namespace tern::tuner
