#pragma once

// What a lane keeps of a send or recv in flight, and what it writes down of one that has ended.

#include <cstdint>

#include "codec/recipe.h"
#include "collective/mailbox.h"
#include "daemon/lane/group_core.h"
#include "daemon/lane/lane_clients.h"

namespace tern::daemon {

struct PassMemory {
  LaneClient* client = nullptr;
  std::uint64_t ticket = 0;
  Operand elements;
  std::uint64_t started_ns = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t elements_sent = 0;  // in bytes
  bool encodes = false;             // a send, by `recipe`
  codec::Recipe recipe;
};

// For the counters, the flight recorder and a trace, where events name the group by `group`.
void write_down(GroupCore& core, LaneGroup& group, const collective::Pass& pass,
                const PassMemory& memory);

}  // namespace tern::daemon
