#pragma once

// How long frames that borrow memory are under way, as events of the lane's trace.

#include <cstdint>
#include <vector>

#include "daemon/lane/frame_memory.h"
#include "daemon/lane/trace_ring.h"

namespace tern::daemon {

class WireTrace {
 public:
  // `trace` outlives this. `cookies`: the largest there is.
  WireTrace(TraceRing& trace, std::size_t cookies) : trace_(trace), events_(cookies) {}

  bool on() const noexcept { return trace_.on(); }
  // The first frame of the cookie leaves.
  void departs(Cookie cookie, const TraceEvent& event) noexcept {
    TraceEvent& known = events_[cookie - 1];
    if (known.begin_ns != 0) return;
    known = event;
    known.kind = TraceKind::wire;
  }
  // All its receivers have acknowledged it.
  void arrives(Cookie cookie, std::uint64_t now_ns) noexcept {
    TraceEvent& event = events_[cookie - 1];
    if (event.begin_ns == 0) return;
    event.end_ns = now_ns;
    if (trace_.on()) trace_.record(event);
    event = TraceEvent{};
  }

 private:
  TraceRing& trace_;
  std::vector<TraceEvent> events_;  // by cookie; begin_ns 0: not traced
};

}  // namespace tern::daemon
