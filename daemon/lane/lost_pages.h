#pragma once

#include <vector>

#include "daemon/lane/group_core.h"
#include "daemon/lane/lane_clients.h"

namespace tern::daemon {

// Memory of ranks of this node that has lost pages. What was read of it is nobody's values, and to
// read on would cost a mapping for each piece.
class LostPages {
 public:
  // By local rank; null once dropped. Everything given outlives this.
  LostPages(GroupCore& core, const std::vector<LaneClient*>& clients)
      : core_(core), clients_(clients) {}

  // Fails the op if a rank's memory has. True: it has failed, perhaps before.
  bool fail(collective::OpId op);

 private:
  GroupCore& core_;
  const std::vector<LaneClient*>& clients_;
};

}  // namespace tern::daemon
