#include "daemon/lane/pass_ledger.h"

#include "base/bump.h"

namespace tern::daemon {

void write_down(GroupCore& core, LaneGroup& group, const collective::Pass& pass,
                const PassMemory& memory) {
  const std::uint64_t now_ns = core.now_ns();
  const collective::Envelope& envelope = pass.what.envelope;
  LaneCounters& counters = *core.resources().counters;
  bump(pass.outcome.code == Errc::ok ? counters.ops_completed : counters.ops_failed,
       std::uint64_t{1});
  if (pass.outcome.code == Errc::ok) core.resources().kinds.count(pass.what.kind);
  OpRecord record;
  record.kind = pass.what.kind;
  record.sequence = envelope.tag;
  record.peer = pass.what.sends ? envelope.destination : envelope.source;
  if (!pass.what.sends && pass.offer != collective::kNoSlot) record.peer = pass.source;
  record.count = pass.what.sends ? envelope.count : pass.elements;
  record.bytes_sent = memory.bytes_sent;
  record.submitted_ns = pass.what.now_ns;
  record.started_ns = memory.started_ns;
  record.ended_ns = now_ns;
  record.lane = static_cast<std::uint16_t>(core.setup().shape.lane);
  record.dtype = static_cast<std::uint8_t>(envelope.dtype);
  record.eager = pass.eager;
  core.resources().reports.record({&group, record, pass.outcome.code, Sentence(pass.outcome.text)},
                                  counters);
  TraceRing& trace = core.resources().trace;
  if (!trace.on()) return;
  TraceEvent event;
  event.group = core.setup().number;
  event.sequence = envelope.tag;
  event.bytes_raw = memory.elements_sent;
  event.bytes = memory.bytes_sent;
  event.node = record.kind;
  event.codec = static_cast<std::uint8_t>(pass.outcome.code);
  event.begin_ns = pass.what.now_ns;
  event.end_ns = now_ns;
  event.kind = TraceKind::op;
  trace.record(event);
  event.kind = TraceKind::wait;
  event.end_ns = memory.started_ns != 0 ? memory.started_ns : now_ns;
  trace.record(event);
}

}  // namespace tern::daemon
