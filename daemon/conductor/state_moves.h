#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "daemon/conductor/clients.h"
#include "daemon/conductor/groups.h"
#include "daemon/conductor/outlets.h"
#include "daemon/tensor/state_part.h"

namespace tern::daemon {

// Codec state for checkpoints: a client gives room in its arena, the lanes copy their chunks'
// records.
class StateMoves {
 public:
  // REQUIRES: what is given outlives this.
  StateMoves(const Outlets& outlets, const Clients& clients, const Groups& groups)
      : outlets_(outlets), clients_(clients), groups_(groups) {}

  void begin(const Client& client, const shm::TensorStatePacket& packet);
  // A lane has copied its records, or says why not.
  void on_moved(const event::StateMoved& event);
  // How many are under way.
  std::size_t count() const { return moves_.size(); }

 private:
  // Where the records lie, and what of the client's room is right for them.
  Status prepare(StateMove& move, const Client& client, const shm::TensorStatePacket& packet) const;
  void tell(std::uint64_t client, std::uint64_t request, std::uint64_t bytes);
  void finish(const StateMove& move);

  Outlets outlets_;
  const Clients& clients_;
  const Groups& groups_;
  std::vector<std::unique_ptr<StateMove>> moves_;
};

}  // namespace tern::daemon
