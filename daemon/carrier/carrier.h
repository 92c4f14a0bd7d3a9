#pragma once

// What the frames of lanes travel on, as the settings say. carrier_rdma.cc is in builds with
// libibverbs, carrier_tcp.cc in those without.

#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "daemon/config/config.h"
#include "net/event_loop.h"
#include "net/transport.h"

namespace tern::daemon {

// One sentence for the log and the status: which carriers there are and why not others. The error:
// what is asked for cannot be had.
Result<std::string> probe_carriers(const Config& config);

// What the carrier of one lane works with; all of it outlives the carrier.
struct LaneCarriage {
  net::Transport& tcp;
  net::EventLoop& loop;
  const Clock& clock;
  std::uint32_t lane = 0;
};

// RDMA beside `tcp`, which carries its connections; null: TCP alone.
std::unique_ptr<net::Transport> make_rdma_transport(const Config& config, const LaneCarriage& of);

}  // namespace tern::daemon
