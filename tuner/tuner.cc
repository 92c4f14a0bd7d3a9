#include "tuner/tuner.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace tern::tuner {
namespace {

constexpr std::size_t kMaxRemembered = 4'096;  // tensors
constexpr double kSpeedWeight = 0.3;           // of a new measurement
constexpr double kLaneFade = 0.98;             // of what lanes did before
// Raw is not encoded, and adding is one pass over memory.
constexpr double kAddNs = 0.15;
// Until anything is measured, a codec is taken for a slow one: nothing is lost by sending raw.
constexpr double kUnknownNs = 5.0;

}  // namespace

Tuner::Tuner(std::vector<Candidate> candidates, Settings settings)
    : candidates_(std::move(candidates)), settings_(settings), speeds_(candidates_.size()) {
  TERN_CHECK(!candidates_.empty() && candidates_.size() <= kMaxCandidates);
  TERN_CHECK(candidates_[kRaw].recipe == "raw");
  for (auto& one : speeds_[kRaw]) one = {0.0, kAddNs, true};
}

Tuner::~Tuner() = default;

std::size_t Tuner::size_class(std::uint64_t chunk_bytes) noexcept {
  if (chunk_bytes <= (16u << 10)) return 0;
  if (chunk_bytes <= (64u << 10)) return 1;
  return chunk_bytes <= (256u << 10) ? 2 : 3;
}

void Tuner::add_tensor(TensorKey key, TensorInfo info) {
  TERN_CHECK(info.peers.size() + 1 == info.shape.nodes);
  Tensor tensor;
  tensor.size_class = size_class(std::min(info.shape.bytes, info.shape.chunk_bytes));
  const Caution caution{info.level, info.bounds.value_or(bounds_of(info.level)), settings_.guard};
  tensor.policy =
      std::make_unique<TensorPolicy>(candidates_, info.shape, caution, settings_.policy);
  tensor.policy->exclude(info.unusable);
  for (const PeerKey& peer : info.peers) tensor.peers.push_back(&peers_[peer]);
  const auto known = remembered_.find(info.name);
  if (known != remembered_.end()) {
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      const auto record = known->second.records.find(candidates_[i].recipe);
      if (record != known->second.records.end()) tensor.policy->records()[i] = record->second;
    }
  }
  tensor.info = std::move(info);
  tensors_.insert_or_assign(key, std::move(tensor));
}

void Tuner::remove_tensor(TensorKey key) {
  const auto found = tensors_.find(key);
  if (found == tensors_.end()) return;
  // Names of jobs that never come back must not pile up: somebody makes room.
  if (remembered_.size() >= kMaxRemembered) remembered_.erase(remembered_.begin());
  Remembered& remembered = remembered_[found->second.info.name];
  const auto records = found->second.policy->records();
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    CandidateRecord record = records[i];
    record.fit_op = 0;
    remembered.records[candidates_[i].recipe] = record;
  }
  tensors_.erase(found);
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

// ---- What is known

// Of a size that was not measured: that of the nearest larger or smaller one.
Tuner::Speed Tuner::speed(CandidateIndex candidate, std::size_t size_class) const noexcept {
  const auto& by_size = speeds_[candidate];
  for (std::size_t distance = 0; distance < kSizeClasses; ++distance) {
    if (size_class + distance < kSizeClasses && by_size[size_class + distance].known) {
      return by_size[size_class + distance];
    }
    if (size_class >= distance && by_size[size_class - distance].known) {
      return by_size[size_class - distance];
    }
  }
  return {kUnknownNs, kUnknownNs, false};
}

Circumstances Tuner::circumstances(const Tensor& tensor) const {
  costs_.resize(candidates_.size());
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    const Speed known = speed(static_cast<CandidateIndex>(i), tensor.size_class);
    const double strain = i == kRaw ? 1.0 : strain_.value();
    costs_[i] = {known.encode_ns * strain, known.decode_ns * strain, 1.0};
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
  now.lane = lane_;
  now.round_trip_ns = std::max(round_trip_ns, 2.0 * tensor.hop_ns);
  return now;
}

const Choice& Tuner::decide(TensorKey key) {
  Tensor& tensor = tensors_.at(key);
  return tensor.policy->decide(circumstances(tensor));
}

// ---- Observations

void Tuner::learn_speed(CandidateIndex candidate, const SampleMeasurement& sample) {
  if (sample.bytes == 0 || candidate == kRaw) return;
  const double bytes = static_cast<double>(sample.bytes);
  const Speed fresh{sample.encode_ns / bytes, sample.decode_ns / bytes, true};
  Speed& known = speeds_[candidate][size_class(sample.bytes)];
  if (!known.known) {
    known = fresh;
    return;
  }
  known.encode_ns += kSpeedWeight * (fresh.encode_ns - known.encode_ns);
  known.decode_ns += kSpeedWeight * (fresh.decode_ns - known.decode_ns);
}

void Tuner::calibrate(const SampleMeasurement& sample) { learn_speed(sample.candidate, sample); }

void Tuner::observe_sample(TensorKey key, const SampleMeasurement& sample) {
  learn_speed(sample.candidate, sample);
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
  const bool raw =
      op.choice.broadcast == kRaw && std::all_of(op.choice.reduce.begin(), op.choice.reduce.end(),
                                                 [](CandidateIndex one) { return one == kRaw; });
  if (!raw || !op.alike || !(op.ns > 0.0) || shape.bytes > shape.eager_bytes) return;
  const Prediction model = tensor.policy->predicted(kRaw, circumstances(tensor));
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
  tensor.policy->observe_op(measured.op, circumstances(tensor));
  // What coding takes on a lane whose core others use too.
  const CandidateIndex used = choice.broadcast;
  const bool uniform = std::all_of(choice.reduce.begin(), choice.reduce.end(),
                                   [used](CandidateIndex one) { return one == used; });
  const Speed shadow = speed(used, tensor.size_class);
  if (used == kRaw || !uniform || measured.encoded_bytes == 0 || !shadow.known) return;
  const double here = measured.encode_ns / static_cast<double>(measured.encoded_bytes);
  strain_.observe(std::clamp(here / shadow.encode_ns, 0.25, 8.0));
}

void Tuner::observe_rate(const PeerKey& peer, double bytes_per_s, bool limited) {
  peers_[peer].window.observe(bytes_per_s, limited);
}

void Tuner::observe_peer(const PeerKey& peer, double inbound_bytes_per_s, double round_trip_ns,
                         double decode_strain) {
  Peer& known = peers_[peer];
  known.inbound = inbound_bytes_per_s;
  known.round_trip_ns = round_trip_ns;
  known.decode_strain = decode_strain;
}

// Least squares over the recent past: work = bytes * byte_ns + blocks * chunk_ns, drawn towards
// what is usual as long as there is little else to go by.
void Tuner::observe_lane(const LaneMeasurement& lane) {
  const double work = lane.busy_ns - lane.codec_ns;
  if (!(work > 0.0) || lane.blocks == 0) return;
  const double bytes = static_cast<double>(lane.wire_bytes);
  const double blocks = static_cast<double>(lane.blocks);
  const double scale = 1.0 / (blocks * blocks);  // each interval counts once, however long
  for (double& one : lane_matrix_) one *= kLaneFade;
  for (double& one : lane_vector_) one *= kLaneFade;
  lane_matrix_[0] += scale * bytes * bytes;
  lane_matrix_[1] += scale * bytes * blocks;
  lane_matrix_[2] += scale * blocks * blocks;
  lane_vector_[0] += scale * bytes * work;
  lane_vector_[1] += scale * blocks * work;
  const LaneCost usual;
  const double chunk = 64.0 * 1024.0;
  const double a = lane_matrix_[0] + chunk * chunk;
  const double b = lane_matrix_[1];
  const double c = lane_matrix_[2] + 1.0;
  const double u = lane_vector_[0] + chunk * chunk * usual.byte_ns;
  const double v = lane_vector_[1] + usual.chunk_ns;
  const double determinant = a * c - b * b;
  lane_.byte_ns = std::clamp((u * c - v * b) / determinant, 0.02, 4.0);
  lane_.chunk_ns = std::clamp((a * v - b * u) / determinant, 200.0, 200'000.0);
}

}  // namespace tern::tuner
