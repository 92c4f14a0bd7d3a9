#pragma once

// The groups of a lane, between AddGroup and GroupRemoved. They belong to the conductor.

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "daemon/lane/lane_group.h"

namespace tern::daemon {

class LaneGroups {
 public:
  void add(LaneGroup& group);
  void remove(LaneGroup& group);

  const std::vector<LaneGroup*>& all() const noexcept { return groups_; }
  auto begin() const noexcept { return groups_.begin(); }
  auto end() const noexcept { return groups_.end(); }
  // The next one, of all in a circle: who had no time for all of them goes on where it was.
  // REQUIRES: there is one.
  LaneGroup& take_turn();
  // Null: there is none of the number that the daemon has given its clients.
  LaneGroup* by_number(std::uint64_t number) const;

  // Whose frame it is. A peer may send any header.
  struct Addressee {
    LaneGroup* group = nullptr;  // null: not known, or ended
    bool is_known = false;       // there is a group of this token
    bool keeps_protocol = true;  // false: it is another epoch's, or another node's than it says
  };
  Addressee addressee(const wire::FrameHeader& header, const LanePeer& peer) const;

  bool any_live_op() const;
  std::uint64_t ops_in_flight() const;
  void drop_pages();

 private:
  std::vector<LaneGroup*> groups_;
  std::size_t next_ = 0;  // whose turn it is
  std::unordered_map<std::uint64_t, LaneGroup*> by_token_;
  std::unordered_map<std::uint64_t, LaneGroup*> by_number_;
};

}  // namespace tern::daemon
