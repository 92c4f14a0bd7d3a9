// What a lane does for an op, as events of its trace.

#include "daemon/lane/lane.h"
#include "daemon/lane/lane_group.h"

namespace tern::daemon {

using collective::OpId;

void LaneGroup::trace_codec(TraceKind kind, OpId op, std::uint32_t number, std::uint32_t node,
                            const wire::BlockHeader& header, const CodecTime& time) {
  TraceEvent event;
  event.kind = kind;
  event.begin_ns = time.begin_ns;
  event.end_ns = time.end_ns;
  event.group = setup_.number;
  event.tensor = ops_.op(op).key.tensor;
  event.sequence = ops_.op(op).key.sequence;
  event.bytes_raw = std::uint64_t{header.elements} * dtype_bytes(dtype(op));
  event.bytes = time.bytes;
  event.chunk = number;
  event.node = static_cast<std::uint16_t>(node);
  event.codec = header.codec;
  lane_->trace().record(event);
}

void LaneGroup::trace_op(OpId op, Errc code, std::uint64_t now_ns) {
  const OpData& data = data_[op];
  const auto& ended = ops_.op(op);
  if (data.submitted_ns == 0) return;  // none of the ranks here has submitted it
  TraceEvent event;
  event.group = setup_.number;
  event.tensor = ended.key.tensor;
  event.sequence = ended.key.sequence;
  event.bytes_raw = data.bytes_raw;
  event.bytes = data.bytes_sent;
  event.node = ended.announced_first.kind;
  event.codec = static_cast<std::uint8_t>(code);
  const auto stage = [&](TraceKind kind, std::uint64_t begin_ns, std::uint64_t end_ns) {
    event.kind = kind;
    event.begin_ns = begin_ns;
    event.end_ns = end_ns;
    lane_->trace().record(event);
  };
  stage(TraceKind::op, data.submitted_ns, now_ns);
  const std::uint64_t started = data.started_ns != 0 ? data.started_ns : now_ns;
  stage(TraceKind::wait, data.submitted_ns, started);
  if (data.first_encode_ns > started) stage(TraceKind::queue, started, data.first_encode_ns);
}

}  // namespace tern::daemon
