// Ops whose recipe the tuner chooses: what is sent how, samples for its shadow, and residuals that
// a lossy recipe left to a lossless one.

#include <algorithm>
#include <utility>

#include "codec/accumulate.h"
#include "daemon/lane/lane.h"
#include "daemon/lane/lane_group.h"
#include "daemon/lane/shadow.h"

namespace tern::daemon {

using collective::OpId;

// At the submission of an op: one choice for all of it, unless a new one comes in its middle.
void LaneGroup::take_choice(OpId op) {
  OpData& data = data_[op];
  TensorTuning& tuning = *data.tuning;
  const std::uint32_t lane = setup_.shape.lane;
  const std::span<tuner::CandidateIndex> choice =
      std::span(choices_).subspan(std::size_t{op} * nodes_, nodes_);
  const std::uint64_t use = ops_.op(op).key.sequence;
  if (!tuning.replay.empty()) {
    data.replayed = true;
    std::fill(choice.begin(), choice.end(), tuner::kRaw);
    if (const auto* record = tuning.replay[lane].op(use)) {
      std::copy(record->by_node.begin(), record->by_node.end(), choice.begin());
      data.probe_chunks = record->probe_chunks;
    }
    return;
  }
  data.choice = tuning.read(choice, data.probe_chunks, data.trial);
}

// An op waits for the slowest of its nodes, so that they had better send it alike: as node 0 does.
void LaneGroup::describe_lead(OpId op, wire::AnnounceBody& body) {
  const OpData& data = data_[op];
  if (data.tuning == nullptr || data.replayed) return;
  body.lead = static_cast<std::uint8_t>(choice_of(op, self_) + 1);
  body.lead_is_trial = data.trial ? 1 : 0;
  body.candidates = data.tuning->list();
}

// The announcement may come before this node's own submission: what it says is judged later.
void LaneGroup::on_lead(OpId op, const wire::AnnounceBody& body) {
  const auto candidate = static_cast<std::uint8_t>(body.lead - 1);  // none: OpRecord::kNone
  data_[op].lead = {candidate, body.lead_is_trial != 0, body.candidates};
}

// Before the first block of an op: all nodes have announced it.
void LaneGroup::settle_choice(OpId op) {
  OpData& data = data_[op];
  data.settled = true;
  if (data.replayed) return;
  TensorTuning& tuning = *data.tuning;
  const std::uint8_t lead = data.lead.candidate;
  data.led = lead != OpRecord::kNone && data.lead.list == tuning.list() && tuning.may_use(lead);
  if (data.led && choice_of(op, self_) != lead) {
    for (std::uint32_t node = 0; node < nodes_; ++node) choice_of(op, node) = lead;
    data.overruled = true;
  }
  if (tuning.logged) log_choice(op);
}

// A log says from which use on how ops are sent; one that is settled out of turn needs a line.
void LaneGroup::log_choice(OpId op) {
  const OpData& data = data_[op];
  TensorLaneStats& stats = data.tensor->lanes[setup_.shape.lane];
  ChoiceUsed used{data.choice};
  if (data.overruled) used = {0, data.lead.candidate, data.probe_chunks};
  const std::uint64_t use = ops_.op(op).key.sequence;
  const bool in_turn = std::exchange(stats.settled_use, use) + 1 == use;
  const bool same = std::exchange(stats.settled_choice, used.packed()) == used.packed();
  if (in_turn && same) return;
  lane_->report(event::ChoiceInUse{this, data.tensor->id, use, used});
}

// A result of another node: whether it was made as here.
void LaneGroup::note_result(OpId op, const wire::BlockHeader& header) {
  OpData& data = data_[op];
  if (data.tuning == nullptr || (header.flags & wire::kBlockNonfiniteRaw) != 0) return;
  data.alike = data.alike && data.tuning->makes(choice_of(op, self_), header);
}

// The tuner hears of these at once, and of others when it is convenient: to wake it costs as much
// as a short op.
bool LaneGroup::is_surprising(const OpData& data, std::uint64_t now_ns) const {
  constexpr std::uint64_t kFirstOps = 16;
  constexpr double kUsual = 1.4;
  constexpr double kShortNs = 1e6;
  TensorLaneStats& stats = data.tensor->lanes[setup_.shape.lane];
  const auto took = static_cast<double>(now_ns - data.submitted_ns);
  const double usual = std::exchange(stats.usual_ns, took);
  if (stats.ops.load(std::memory_order_relaxed) < kFirstOps) return true;
  return std::max(took, usual) > kShortNs && (took > kUsual * usual || took * kUsual < usual);
}

void LaneGroup::describe_choice(const OpData& data, std::uint64_t now_ns, OpRecord& record) const {
  record.tuned = 1;
  record.choice = data.choice;
  record.alike = data.alike ? 1 : 0;
  record.lead = data.led ? data.lead.candidate : OpRecord::kNone;
  record.lead_is_trial = data.lead.trial ? 1 : 0;
  record.mixed = data.mixed ? 1 : 0;
  record.surprising = is_surprising(data, now_ns) ? 1 : 0;
  record.encode_ns = data.encode_ns;
  record.encoded_bytes = data.encoded_bytes;
  record.error = data.error;
}

// One look at the carrier for each peer and op that is large enough to say something. A carrier may
// take itself for full in a short burst; a link has been full only if what went over it, in this op
// or since the last look, comes near the rate that it claims.
void LaneGroup::read_rates(const OpData& data, std::uint64_t now_ns) {
  constexpr double kFull = 0.6;
  constexpr double kImpossible = 1.2;
  const auto rate_of = [](std::uint64_t bytes, std::uint64_t ns) {
    return ns == 0 ? 0.0 : 1e9 * static_cast<double>(bytes) / static_cast<double>(ns);
  };
  std::uint64_t slowest = 0;  // of what full links have shown
  const double op_rate = data.started_ns == 0
                             ? 0.0
                             : rate_of(data.bytes_sent / (nodes_ - 1), now_ns - data.started_ns);
  for (std::uint32_t node = 0; node < nodes_; ++node) {
    if (peers_[node] == nullptr || !peers_[node]->link) continue;
    LanePeer& peer = *peers_[node];
    const net::DeliveryRate rate = peer.link->delivery_rate();
    const std::uint64_t bytes = peer.link->stats().bytes_sent;
    const double used = std::max(op_rate, rate_of(bytes - peer.rate_bytes, now_ns - peer.rate_ns));
    peer.rate_bytes = bytes;
    peer.rate_ns = now_ns;
    const bool limited =
        rate.limited || used < kFull * rate.bytes_per_s || op_rate > kImpossible * rate.bytes_per_s;
    RateCell& cell = rates_[node];
    // A carrier that does not know its rate has at least had that of the op.
    cell.bytes_per_s.store(std::max(rate.bytes_per_s, op_rate), std::memory_order_relaxed);
    cell.limited.store(limited, std::memory_order_relaxed);
    cell.round_trip_ns.store(static_cast<double>(rate.round_trip_ns), std::memory_order_relaxed);
    // What a sender with little to send has seen of its link is no news to others.
    const auto delivered = static_cast<std::uint64_t>(rate.bytes_per_s);
    if (!limited && (slowest == 0 || delivered < slowest)) slowest = delivered;
    cell.inbound.store(static_cast<double>(peer.link->stats().peer_delivers),
                       std::memory_order_relaxed);
    compare_speed(peer, cell);
  }
  // An op waits for the slowest link of all, whoever is at its ends.
  for (LanePeer* const peer : peers_) {
    if (peer != nullptr && peer->link) peer->link->report_delivered(slowest);
  }
}

// By what both sides have taken for the other's blocks since the last look, which are mostly of the
// same recipe.
void LaneGroup::compare_speed(LanePeer& peer, RateCell& cell) {
  constexpr std::uint64_t kEnoughBytes = 1 << 20;
  constexpr double kWeight = 0.2;
  peer.work.peer_ns = peer.link->stats().peer_decode_ns;
  const LanePeer::Work& now = peer.work;
  const LanePeer::Work& seen = peer.work_seen;
  if (now.sent_bytes < seen.sent_bytes + kEnoughBytes ||
      now.added_bytes < seen.added_bytes + kEnoughBytes || now.peer_ns <= seen.peer_ns ||
      now.added_ns <= seen.added_ns) {
    return;
  }
  const auto per_byte = [](std::uint64_t ns, std::uint64_t bytes) {
    return static_cast<double>(ns) / static_cast<double>(bytes);
  };
  const double there = per_byte(now.peer_ns - seen.peer_ns, now.sent_bytes - seen.sent_bytes);
  const double here = per_byte(now.added_ns - seen.added_ns, now.added_bytes - seen.added_bytes);
  const double last = cell.decode_strain.load(std::memory_order_relaxed);
  const double strain = std::clamp(there / here, 0.125, 8.0);
  cell.decode_strain.store(last + kWeight * (strain - last), std::memory_order_relaxed);
  peer.work_seen = peer.work;
}

bool LaneGroup::chooses_raw(OpId op) const {
  const auto begin = choices_.begin() + static_cast<std::ptrdiff_t>(std::size_t{op} * nodes_);
  return std::all_of(begin, begin + nodes_, [](auto one) { return one == tuner::kRaw; });
}

// Of one block. `node`: the owner that a contribution goes to; this node for a result.
const codec::Recipe& LaneGroup::recipe_of(OpId op, std::uint32_t number, Leg leg,
                                          std::uint32_t node) {
  OpData& data = data_[op];
  if (data.tuning == nullptr) return data.recipe;
  TensorTuning& tuning = *data.tuning;
  if (!data.settled) settle_choice(op);
  // The first chunks of each owner, whatever the order in which they go out.
  if (leg == Leg::reduce && number / nodes_ < data.probe_chunks) return tuning.recipe(tuner::kRaw);
  tuner::CandidateIndex candidate = choice_of(op, node);
  const std::uint64_t use = ops_.op(op).key.sequence;
  if (data.replayed) {
    const std::uint64_t place = std::uint64_t{number} * 2 + (leg == Leg::broadcast ? 1 : 0);
    const auto* other = tuning.replay[setup_.shape.lane].chunk(use, place);
    return tuning.recipe(other != nullptr ? other->candidate : candidate);
  }
  if (data.led || tuning.version() == data.choice) return tuning.recipe(candidate);
  const tuner::CandidateIndex now = tuning.now(node);
  data.mixed = data.mixed || now != candidate;
  if (now != candidate && tuning.logged) {
    lane_->report(
        event::ChunkChoice{this, data.tensor->id, use, number, static_cast<wire::Leg>(leg), now});
  }
  return tuning.recipe(now);
}

bool LaneGroup::owns_all(OpId op) const {
  const auto& chunks = ops_.op(op).chunks;
  for (std::uint32_t node = 0; node < nodes_; ++node) {
    if (node != self_ && chunks.owned(node) > 0) return false;
  }
  return true;
}

void LaneGroup::offer_sample(OpId op, const Part& part, const float* residual) {
  OpData& data = data_[op];
  Shadow* const shadow = lane_->shadow();
  const std::uint32_t lane = lane_->settings().lane;
  if (shadow == nullptr || !data.tuning->sample_wanted.load(std::memory_order_relaxed) ||
      part.elements == 0 || !shadow->has_room(lane)) {
    return;
  }
  data.tuning->sample_wanted.store(false, std::memory_order_relaxed);
  const Part sample{part.begin, std::min(part.elements, Shadow::kSampleElements)};
  shadow->offer(lane, data.tuning->number(), dtype(op), local_f32(op, sample), residual,
                data.state_scale);
  bump(lane_->mutable_counters().samples, std::uint64_t{1});
}

// ---- Residuals

// Adds what earlier blocks of the chunk left out, in full; the residual is zero then. False: a
// value is not finite, and the residual stays.
bool LaneGroup::add_owed(OpId op, std::uint32_t number, std::span<float> sum) {
  OpData& data = data_[op];
  float* const residual = data.tensor->codec.sender(part(op, number).begin);
  if (residual == nullptr || codec::scan_max(sum, residual, data.state_scale).nonfinite) {
    return false;
  }
  for (std::size_t i = 0; i < sum.size(); ++i) {
    sum[i] += data.state_scale * residual[i];
    residual[i] = 0.0f;
  }
  data.tuning->owes(number) = 0;
  return true;
}

// A contribution that loses nothing pays back what is owed: raw, from a slab. False: nothing is.
bool LaneGroup::contribute_owed(OpId op, std::uint32_t node, wire::FrameHeader header,
                                const Part& part) {
  OpData& data = data_[op];
  if (data.tuning->owes(header.chunk) == 0) return false;
  const DType type = dtype(op);
  const std::size_t bytes = part.elements * dtype_bytes(type);
  const std::span<const float> input = local_f32(op, part);
  auto* const sum = static_cast<float*>(static_cast<void*>(lane_->scratch(1).data()));
  std::copy(input.begin(), input.end(), sum);
  if (!add_owed(op, header.chunk, {sum, part.elements})) return false;
  const std::uint32_t slab = lane_->send_slabs().take();
  const auto memory = lane_->send_slabs().slab(slab);
  codec::from_f32(type, sum, part.elements, memory.data());
  std::byte prefix[wire::kBlockHeaderBytes];
  wire::write_block_header(
      codec::raw_block_header(type, part.elements, false, ops_.op(op).key.sequence),
      std::span<std::byte, wire::kBlockHeaderBytes>(prefix));
  header.flags = wire::kFlagRawBlock;
  data.bytes_raw += bytes;
  data.bytes_sent += bytes + wire::kBlockHeaderBytes;
  const auto cookie = lane_->make_token(*job_, FrameToken::Leg::contribution, 1, nullptr,
                                        collective::kNoSlot, &lane_->send_slabs(), slab);
  lane_->send(*peers_[node], header, prefix, memory.first(bytes), cookie);
  return true;
}

}  // namespace tern::daemon
