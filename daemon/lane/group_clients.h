#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "daemon/lane/group_core.h"
#include "daemon/lane/lane_clients.h"

namespace tern::daemon {

// The clients of this node's ranks, by local rank; null once a rank has left or its client is gone.
class GroupClients {
 public:
  // Everything given outlives this.
  explicit GroupClients(GroupCore& core)
      : core_(core), clients_(core.setup().local_clients.size(), nullptr) {}
  void attach(LaneClients& clients);

  std::span<LaneClient* const> all() const noexcept { return clients_; }
  LaneClient* operator[](std::size_t local_rank) const noexcept { return clients_[local_rank]; }
  bool has(const LaneClient& client) const noexcept;
  // REQUIRES: has(client).
  std::uint32_t local_rank(const LaneClient& client) const noexcept;

  void forget(const LaneClient& client) noexcept;
  void forget_rank(std::uint32_t local_rank) noexcept { clients_[local_rank] = nullptr; }

  // Fails the op if memory of a rank has lost pages: what was read of it is nobody's values, and to
  // read on would cost a mapping for each piece. True: it has failed, perhaps before.
  bool fail_if_pages_are_lost(collective::OpId op);

 private:
  GroupCore& core_;
  std::vector<LaneClient*> clients_;
};

}  // namespace tern::daemon
