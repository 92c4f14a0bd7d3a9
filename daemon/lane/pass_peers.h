#pragma once

// What sends and recvs must know of the group's other nodes: whether they know of them too, and
// whether they have been told which ranks of this node have left.

#include <cstdint>
#include <vector>

#include "daemon/lane/group_core.h"

namespace tern::daemon {

class PassPeers {
 public:
  explicit PassPeers(const GroupCore& core);

  // Null, or which node cannot take part. A node whose link has not said hello yet is asked nothing:
  // the group's first links said hello before its epoch started.
  const char* objection(char (&text)[96]) const;
  // Likewise of the one node that a send by a recipe that loses values goes to.
  const char* objection_to_loss(std::uint32_t node, char (&text)[96]) const;

  // A rank of this node.
  void add_departure(std::uint32_t rank);
  // To be called now and then: a link takes what it is told once it has said hello.
  void tell_departures() {
    if (untold_) tell_all();
  }
  // Before the link to the node is replaced by another: what was said on it may be lost.
  void before_renewal(std::uint32_t node);

 private:
  struct Node {
    std::uint64_t features = 0;  // as a link said that has been replaced
    std::size_t told = 0;        // of departures_
  };

  bool knows(std::uint32_t node, std::uint64_t feature) const;
  void tell_all();
  void tell(std::uint32_t node);

  const GroupCore& core_;
  std::vector<Node> nodes_;
  std::vector<std::uint32_t> departures_;
  bool untold_ = false;
};

}  // namespace tern::daemon
