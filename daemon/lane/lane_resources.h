#pragma once

// What the groups of one lane share. Owned by: the lane.

#include "base/clock.h"
#include "daemon/lane/block_path.h"
#include "daemon/lane/codec_room.h"
#include "daemon/lane/event_reports.h"
#include "daemon/lane/frame_memory.h"
#include "daemon/lane/kind_counters.h"
#include "daemon/lane/lane_clients.h"
#include "daemon/lane/lane_settings.h"
#include "daemon/lane/trace_ring.h"
#include "daemon/lane/wire_trace.h"

namespace tern::daemon {

class Shadow;

struct LaneResources {
  LaneResources(const LaneSettings& lane_settings, const LaneClients::Surroundings& surroundings)
      : settings(lane_settings),
        clock(surroundings.clock),
        memory(lane_settings),
        codec(lane_settings.chunk_bytes),
        reports(lane_settings.lane),
        clients(lane_settings.lane, surroundings, reports),
        wire_trace(trace, memory.tokens()) {
    clients.count_in(*counters);
  }
  // What is mapped when a lane is made.
  static std::uint64_t mapped_bytes(const LaneSettings& settings) noexcept {
    return FrameMemory::mapped_bytes(settings) + CodecRoom::mapped_bytes(settings.chunk_bytes);
  }

  LaneResources(const LaneResources&) = delete;
  LaneResources& operator=(const LaneResources&) = delete;

  // A frame with a payload, sent or received: what the tuner knows of a lane's work.
  void count_block(std::size_t bytes) noexcept {
    if (bytes == 0) return;  // a grant
    bump(counters->block_bytes, std::uint64_t{bytes});
    bump(counters->blocks, std::uint64_t{1});
  }

  // One receiver of a frame has acknowledged it, or never will.
  void frame_acked(Cookie cookie) {
    BorrowedMemory lent;
    if (cookie == 0 || !memory.acked(cookie, lent)) return;
    wire_trace.arrives(cookie, clock.now_ns());
    if (lent.owner != nullptr) lent.owner->frame_acked(lent.op);
  }

  const LaneSettings settings;
  const Clock& clock;
  FrameMemory memory;
  CodecRoom codec;
  EventReports reports;
  LaneClients clients;
  TraceRing trace;
  WireTrace wire_trace;
  LaneCounters own_counters;
  LaneCounters* counters = &own_counters;  // perhaps memory that others read after our death
  KindCounters kinds;
  Shadow* shadow = nullptr;  // where samples of tensors go; null: nowhere
  HostExecutor host_executor;
  BlockExecutor* executor = &host_executor;
};

}  // namespace tern::daemon
