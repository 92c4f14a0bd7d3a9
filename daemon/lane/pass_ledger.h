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

class PassLedger {
 public:
  // Everything given outlives this. Events name the group by `group`.
  PassLedger(GroupCore& core, LaneGroup& group) : core_(core), group_(group) {}

  // For the counters, the flight recorder and a trace.
  void record(const collective::Pass& pass, const PassMemory& memory);

 private:
  GroupCore& core_;
  LaneGroup& group_;
};

}  // namespace tern::daemon
