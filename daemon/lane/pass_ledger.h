#pragma once

// What a lane writes down of a send or recv that has ended.

#include "collective/mailbox.h"
#include "daemon/lane/group_core.h"
#include "daemon/lane/pass_memories.h"

namespace tern::daemon {

// For the counters, the flight recorder and a trace, where events name the group by `group`.
void write_down(GroupCore& core, LaneGroup& group, const collective::Pass& pass,
                const PassMemory& memory);

}  // namespace tern::daemon
