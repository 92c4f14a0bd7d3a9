#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "net/event_loop.h"
#include "net/transport.h"

namespace tern::bench {

struct RdmaOptions {
  std::string device;
  int gid_index = -1;
  bool payload_crc = true;
  std::uint32_t slot_bytes = 64 << 10;
};

// RDMA beside `tcp`; the error says why it cannot be had. In builds without libibverbs it never
// can.
Result<std::unique_ptr<net::Transport>> make_rdma(const RdmaOptions& options, net::Transport& tcp,
                                                  net::EventLoop& loop, const tern::Clock& clock);
// What the transport counted, as text; empty of one that is not RDMA.
std::string rdma_counters(const net::Transport& transport);

}  // namespace tern::bench
