#include "daemon/lane/op_ledger.h"

#include <algorithm>
#include <utility>

#include "base/bump.h"

namespace tern::daemon {

using collective::OpId;

void OpLedger::count(OpId op, const Ending& ending) {
  const BlockStats& stats = blocks_.stats(op);
  const collective::Op& ended = core_.op(op);
  const LaneOp& data = core_.lane_op(op);
  LaneCounters& counters = *core_.resources().counters;
  bump(counters.codec_ns, stats.encode_ns + stats.decode_ns);
  if (core_.resources().trace.on()) trace(op, ending);
  if (ended.submitted != 0) {
    const bool succeeded = ending.code == Errc::ok;
    bump(succeeded ? counters.ops_completed : counters.ops_failed, std::uint64_t{1});
    if (succeeded) core_.resources().kinds.count(ended.plan->number);
  }
  if (data.tensor == nullptr) return;
  // Lossless codecs keep nothing of what is reduced.
  const OpEncoding& encoding = data.encoding;
  const bool moves = ended.plan != nullptr && ended.plan->moves();
  if (encoding.lossy || (encoding.lossless && moves)) {
    data.tensor->lanes[core_.setup().shape.lane].state_touched = true;
  }
  if (ending.code == Errc::ok) count_tensor(op, ending.now_ns);
}

void OpLedger::count_tensor(OpId op, std::uint64_t now_ns) {
  const LaneOp& data = core_.lane_op(op);
  const BlockStats& block = blocks_.stats(op);
  TensorCounts& stats = data.tensor->lanes[core_.setup().shape.lane].counts;
  const std::uint64_t started = data.started_ns != 0 ? data.started_ns : now_ns;
  // What travels with its announcement is encoded before the op begins.
  const std::uint64_t encoded = std::max(block.first_encode_ns, started);
  const std::uint64_t busy = block.encode_ns + block.decode_ns;
  stats.kind.store(core_.op(op).announced_first.kind, std::memory_order_relaxed);
  bump(stats.ops, std::uint64_t{1});
  bump(stats.bytes_raw, data.bytes_raw);
  bump(stats.bytes_sent, data.bytes_sent);
  bump(stats.encode_ns, block.encode_ns);
  bump(stats.decode_ns, block.decode_ns);
  bump(stats.wait_ns, started - data.submitted_ns);
  bump(stats.queue_ns, encoded - started);
  bump(stats.wire_ns, now_ns - encoded > busy ? now_ns - encoded - busy : 0);
  if (data.encoding.lossy && block.error.energy() > 0) {
    stats.input_energy.store(block.error.energy(), std::memory_order_relaxed);
    stats.residual_energy.store(block.error.residual_energy(), std::memory_order_relaxed);
  }
}

// Each pair of ranks may have a number of its own. Then it is what the ranks of this node have for
// all.
std::uint64_t OpLedger::elements_of(OpId op) const {
  const collective::Op& ended = core_.op(op);
  const bool has_pair_counts =
      ended.plan != nullptr && ended.plan->has_pairs() && ended.announced_first.counts_crc != 0;
  if (!has_pair_counts) return ended.announced_first.count;
  std::uint64_t elements = 0;
  const auto ranks = core_.lane_ops().ranks(op);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if ((ended.submitted >> i & 1) != 0) elements += ranks[i].extents.input.count;
  }
  return elements;
}

void OpLedger::record(OpId op, const Ending& ending) {
  const collective::Op& ended = core_.op(op);
  if (ended.submitted == 0) return;
  const LaneOp& data = core_.lane_op(op);
  const BlockStats& block = blocks_.stats(op);
  OpRecord record;
  record.tensor = ended.key.tensor;
  record.sequence = ended.key.sequence;
  record.count = elements_of(op);
  record.bytes_sent = data.bytes_sent;
  record.submitted_ns = data.submitted_ns;
  record.started_ns = data.started_ns;
  record.ended_ns = ending.now_ns;
  record.kind = ended.announced_first.kind;
  record.lane = static_cast<std::uint16_t>(core_.setup().shape.lane);
  record.dtype = ended.announced_first.dtype;
  record.reduction = ended.announced_first.reduction;
  record.lossy = data.encoding.lossy;
  record.eager = ended.is_eager();
  record.tuned = tuning_.describe(op);
  if (record.tuned) {
    TunedRecord& tuned = *record.tuned;
    tuned.announced = ended.announces_chunks();
    tuned.one_sided =
        !ended.is_eager() && ended.plan->keeps_sums() && ended.chunks.owned(core_.self()) == 0;
    tuned.surprising = is_surprising(data, ending.now_ns);
    tuned.encode_ns = block.encode_ns;
    tuned.client_ns = data.tensor->lanes[core_.setup().shape.lane].tuned.client_ns;
    tuned.encoded_bytes = block.encoded_bytes;
    tuned.error = block.error;
  }
  core_.resources().reports.record({&group_, record, ending.code, Sentence(ending.text)},
                                   *core_.resources().counters);
}

// The tuner hears of these at once, and of others when it is convenient: to wake it costs as much
// as a short op.
bool OpLedger::is_surprising(const LaneOp& op, std::uint64_t now_ns) const {
  constexpr std::uint64_t kFirstOps = 16;
  constexpr double kUsual = 1.4;
  constexpr double kShortNs = 1e6;
  TensorLane& lane = op.tensor->lanes[core_.setup().shape.lane];
  const auto took = static_cast<double>(now_ns - op.submitted_ns);
  const double usual = std::exchange(lane.usual_ns, took);
  if (lane.counts.ops.load(std::memory_order_relaxed) < kFirstOps) return true;
  return std::max(took, usual) > kShortNs && (took > kUsual * usual || took * kUsual < usual);
}

void OpLedger::trace(OpId op, const Ending& ending) {
  const LaneOp& data = core_.lane_op(op);
  const collective::Op& ended = core_.op(op);
  if (data.submitted_ns == 0) return;  // none of the ranks here has submitted it
  TraceEvent event;
  event.group = core_.setup().number;
  event.tensor = ended.key.tensor;
  event.sequence = ended.key.sequence;
  event.bytes_raw = data.bytes_raw;
  event.bytes = data.bytes_sent;
  event.node = ended.announced_first.kind;
  event.codec = static_cast<std::uint8_t>(ending.code);
  const auto stage = [&](TraceKind kind, std::uint64_t begin_ns, std::uint64_t end_ns) {
    event.kind = kind;
    event.begin_ns = begin_ns;
    event.end_ns = end_ns;
    core_.resources().trace.record(event);
  };
  stage(TraceKind::op, data.submitted_ns, ending.now_ns);
  const std::uint64_t started = data.started_ns != 0 ? data.started_ns : ending.now_ns;
  stage(TraceKind::wait, data.submitted_ns, started);
  const std::uint64_t encoded = blocks_.stats(op).first_encode_ns;
  if (encoded > started) stage(TraceKind::queue, started, encoded);
}

}  // namespace tern::daemon
