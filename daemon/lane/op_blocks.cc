#include "daemon/lane/op_blocks.h"

namespace tern::daemon {

using collective::OpId;

void OpBlocks::attach(CodecRoom& room, TraceRing& trace, LaneCounters& counters,
                      const Clock& clock) {
  room_ = &room;
  trace_ = &trace;
  counters_ = &counters;
  clock_ = &clock;
}

ChunkPart OpBlocks::part(OpId op, std::uint32_t number) const noexcept {
  if (ops_.op(op).is_eager()) return whole(op);
  const collective::ChunkMap& chunks = ops_.op(op).chunks;
  return {chunks.begin(number), chunks.size(number)};
}

ChunkPart OpBlocks::result_part(OpId op, std::uint32_t number) const noexcept {
  const collective::ChunkMap& chunks = ops_.op(op).chunks;
  return {chunks.result_begin(number), chunks.size(number)};
}

std::span<float> OpBlocks::scratch_floats(std::uint32_t index, std::uint32_t elements) noexcept {
  return {as_floats(scratch(index).data()), elements};
}

void OpBlocks::trace(TraceKind kind, const BlockRequest& request, const wire::BlockHeader& header,
                     const Span& time) {
  if (!trace_->on()) return;
  TraceEvent event;
  event.kind = kind;
  event.begin_ns = time.begin_ns;
  event.end_ns = time.end_ns;
  event.group = identity_.group;
  event.tensor = ops_.op(request.op).key.tensor;
  event.sequence = sequence(request.op);
  event.bytes_raw = std::uint64_t{header.elements} * dtype_bytes(dtype(request.op));
  event.bytes = wire::kBlockHeaderBytes + header.payload_bytes;
  event.chunk = request.number;
  event.node = static_cast<std::uint16_t>(kind == TraceKind::decode ? request.node : self());
  event.codec = header.codec;
  trace_->record(event);
}

}  // namespace tern::daemon
