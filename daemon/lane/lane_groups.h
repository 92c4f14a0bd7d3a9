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
  // Of one user, in a circle: who had no time for all of them goes on where it was.
  class OfUser {
   public:
    explicit OfUser(std::uint32_t account) : account_(account) {}
    std::uint32_t account() const noexcept { return account_; }
    std::size_t size() const noexcept { return groups_.size(); }
    // The next one. REQUIRES: there is one.
    LaneGroup& next() const noexcept { return *groups_[next_]; }
    void pass_on() noexcept { next_ = next_ + 1 < groups_.size() ? next_ + 1 : 0; }
    void add(LaneGroup& group) { groups_.push_back(&group); }
    void remove(LaneGroup& group);

   private:
    std::uint32_t account_;
    std::vector<LaneGroup*> groups_;
    std::size_t next_ = 0;
  };
  // Those that have groups, in a circle too: however many groups a user has, the lane's time is
  // divided among users first. REQUIRES: there is one.
  OfUser& take_turn();
  std::size_t users() const noexcept { return users_.size(); }
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
  // How far the pages of groups' rooms have been dropped: a group may go or come meanwhile, which
  // leaves some out until the lane is at rest the next time.
  struct Dropped {
    std::size_t groups = 0, pools = 0;  // of the next group
  };
  // Drops those of one more pool. False: there is none.
  bool drop_pages(Dropped& dropped);

 private:
  std::vector<LaneGroup*> groups_;
  std::vector<OfUser> users_;
  std::size_t next_ = 0;  // whose turn it is
  std::unordered_map<std::uint64_t, LaneGroup*> by_token_;
  std::unordered_map<std::uint64_t, LaneGroup*> by_number_;
};

}  // namespace tern::daemon
