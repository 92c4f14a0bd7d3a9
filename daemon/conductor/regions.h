#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "daemon/conductor/clients.h"
#include "daemon/conductor/outlets.h"
#include "daemon/conductor/quotas.h"

namespace tern::daemon {

// Memory that clients have beside their arenas (docs/shm-layout.md, "Regions"). The daemon makes it
// at a client's request and passes the descriptor; the client maps it and says so; it is sealed,
// and then lanes may use it. Freed, it stays until no lane has an op that uses it.
class Regions {
 public:
  // Everything given outlives this.
  Regions(const Outlets& outlets, Clients& clients, const Quotas& quotas)
      : outlets_(outlets), clients_(clients), quotas_(quotas) {}

  void create(Client& client, const shm::RegionCreatePacket& packet);
  void open(Client& client, const shm::RegionPacket& packet);
  void free(Client& client, const shm::RegionPacket& packet);

  // Tells lanes and clients of regions whose sealing has ended, and says how many these were. Of a
  // client who keeps a region from being sealed the id is left in `bad`.
  int settle(std::vector<std::uint64_t>& bad);
  // When a seal is to be looked at.
  std::uint64_t next_deadline_ns() const;
  // A lane has let go of it.
  void on(const event::RegionDropped& event);

 private:
  ClientRegion* find(std::uint64_t client, std::uint32_t region) const;
  void dispose(Client& client, std::uint32_t region);

  Outlets outlets_;
  Clients& clients_;
  const Quotas& quotas_;
  std::vector<std::pair<std::uint64_t, std::uint32_t>> sealing_;  // client and region
};

}  // namespace tern::daemon
