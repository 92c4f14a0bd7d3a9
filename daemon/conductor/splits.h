#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "daemon/conductor/clients.h"
#include "daemon/conductor/drain.h"
#include "daemon/conductor/groups.h"
#include "daemon/conductor/joins.h"
#include "daemon/conductor/outlets.h"
#include "daemon/conductor/quotas.h"
#include "daemon/conductor/refusals.h"

namespace tern::daemon {

// The splits of groups that ranks of this node are in: a split is a join to what gathers at the
// parent's coordinator, and becomes one to a child when that has divided the ranks.
class Splits {
 public:
  // They outlive this.
  struct Partners {
    const Clients& clients;
    Joins& joins;
    Groups& groups;
    const Drain& drain;
    const Quotas& quotas;
    Refusals& refusals;
  };

  Splits(const Outlets& outlets, const Partners& partners)
      : outlets_(outlets), partners_(partners) {}

  // Begins what a client asks for, or refuses it.
  void begin(const Client& client, const shm::GroupSplitPacket& packet);
  // False: the message is about no split.
  bool on_message(LinkRef from, const nlohmann::json& message);

 private:
  void place_in_child(const std::string& uid, std::uint32_t rank, std::uint32_t place);
  void count(LinkRef from, const nlohmann::json& message) const;

  Outlets outlets_;
  Partners partners_;
};

}  // namespace tern::daemon
