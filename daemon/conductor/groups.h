#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/time_slice.h"
#include "daemon/conductor/flight_recorder.h"
#include "daemon/conductor/outlets.h"
#include "daemon/membership/member_group.h"
#include "daemon/service/disposal.h"
#include "daemon/tuning/tuning_policy.h"

namespace tern::daemon {

// The epochs that ranks of this node are in: start, departure of ranks, end, removal.
class Groups {
 public:
  using Map = std::map<std::uint64_t, std::unique_ptr<MemberGroup>>;  // by number

  struct EpochEnd {
    std::string uid;
    std::int64_t epoch = 0;
    Errc code = Errc::ok;
    std::string text;
  };

  // REQUIRES: what is given outlives this.
  // `freeing`: of what lanes kept of groups, and of nothing else. What a user leaves besides may be
  // stuck, as a file that does not close.
  Groups(const Outlets& outlets, FlightRecorder& flights, Disposal& freeing)
      : outlets_(outlets), flights_(flights), freeing_(freeing) {}

  // ---- Which there are; null: there is none
  MemberGroup* by_number(std::uint64_t number) const;
  // Of those that go on. Numbers of epochs come again: a coordinator that is restarted, or had to
  // forget the group, counts from 1, while ranks may still hang in an epoch that has ended.
  MemberGroup* by_epoch(LinkRef coordinator, const std::string& uid, std::int64_t epoch) const;
  MemberGroup* of_lane(const LaneGroup* lane_group) const;
  const Map& all() const { return groups_; }
  bool has_member(std::uint64_t client) const;
  bool has_ops() const;  // some are in flight on a lane
  // Where the coordinators are.
  void add_links(std::set<LinkRef>& links) const;
  // When the next group has waited too long for its start, or settle() has something left.
  std::uint64_t next_deadline_ns() const;

  // ---- An epoch begins
  std::uint64_t next_number() { return next_number_++; }
  void add(std::unique_ptr<MemberGroup> group);
  // A lane has all its links.
  void on_ready(MemberGroup& group);
  // The coordinator says that all nodes are ready.
  void start(MemberGroup& group);
  // After the operator has changed the policy.
  void weigh(const TuningPolicy& policy);

  // ---- A rank leaves
  void on_leave(std::uint64_t client, const shm::GroupLeavePacket& packet);
  // `request` is answered when all lanes have released the rank; 0: nobody asks.
  void leave(MemberGroup& group, MemberRank& rank, std::uint64_t request);
  // No op of the group uses the rank's memory any more on a lane. True: it was the last lane.
  bool on_lane_released(const MemberGroup& group, MemberRank& rank);
  // The coordinator is told.
  void tell_left(const MemberGroup& group, const MemberRank& rank);

  // ---- An epoch ends
  void end(MemberGroup& group, Errc code, const std::string& text, bool tell_coordinator);
  void tell_end(LinkRef coordinator, const EpochEnd& end);
  void end_all(Errc code, const std::string& text);
  void lose_client(std::uint64_t client, const char* why);
  // The link is lost: settle() ends those whose coordinator it led to.
  void lose_coordinator(LinkRef link, const std::string& why) { lost_.push_back({link, why}); }
  // Ends one group that has lost its coordinator or has waited too long for its start, and others
  // until the slice is over. Returns how many.
  int settle(const TimeSlice& slice);
  // When the epoch has ended and no rank of this node has a handle to it.
  void remove_if_unused(MemberGroup& group);
  // A lane has let go of it. True: it was the last one.
  bool on_lane_removed(MemberGroup& group);
  // All lanes have let go of it.
  void forget(MemberGroup& group);
  // What lanes kept of groups that are forgotten, of an account and of all.
  std::uint64_t bytes_being_freed(std::uint32_t account) const {
    return freeing_.bytes_of(account);
  }
  std::uint64_t bytes_being_freed() const { return freeing_.bytes(); }

 private:
  struct LostLink {
    LinkRef link = kSelf;
    std::string why;
  };

  void answer_split(const MemberGroup& group, const MemberRank& rank);
  MemberGroup* led_by(LinkRef coordinator) const;
  MemberGroup* late_to_start() const;

  Outlets outlets_;
  FlightRecorder& flights_;
  Disposal& freeing_;
  Map groups_;
  std::map<const LaneGroup*, MemberGroup*> of_lane_;
  std::deque<LostLink> lost_;  // whose groups have not all ended
  std::uint64_t next_number_ = 1;
};

}  // namespace tern::daemon
