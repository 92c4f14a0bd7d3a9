#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "base/result.h"
#include "daemon/conductor/clients.h"
#include "daemon/conductor/groups.h"
#include "daemon/conductor/outlets.h"
#include "daemon/tensor/state_part.h"

namespace tern::daemon {

// Codec state for checkpoints: a client gives room in its arena, the lanes copy their chunks'
// records. Of each client one after the other: the lanes are others' too.
class StateMoves {
 public:
  // REQUIRES: what is given outlives this.
  StateMoves(const Outlets& outlets, const Clients& clients, const Groups& groups)
      : outlets_(outlets), clients_(clients), groups_(groups) {}

  // REQUIRES: forget() is called before the client goes.
  void begin(const Client& client, const shm::TensorStatePacket& packet);
  // The client asks for nothing any more.
  void forget(std::uint64_t client) { waiting_.erase(client); }
  // A lane has copied its records, or says why not.
  void on_moved(const event::StateMoved& event);
  // How many are under way.
  std::size_t count() const { return moves_.size(); }

 private:
  // Whether it is under way, and has not been answered at once.
  bool start(const Client& client, const shm::TensorStatePacket& packet);
  void start_next(std::uint64_t client);
  // Where the records lie, and what of the client's room is right for them.
  Status prepare(StateMove& move, const Client& client, const MemberGroup& group,
                 const shm::TensorStatePacket& packet) const;
  void tell(std::uint64_t client, std::uint64_t request, std::uint64_t bytes);
  void finish(const StateMove& move, const MemberGroup& group);

  Outlets outlets_;
  const Clients& clients_;
  const Groups& groups_;
  std::vector<std::unique_ptr<StateMove>> moves_;
  std::map<std::uint64_t, std::deque<shm::TensorStatePacket>> waiting_;  // by client
};

}  // namespace tern::daemon
