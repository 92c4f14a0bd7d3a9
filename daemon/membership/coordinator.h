#pragma once

// The groups whose id names this daemon: gathers their ranks, says who is where, and spreads the
// news of their end. Messages in, messages out; no I/O. A rank joins by proving that it knows the
// group's secret, which never crosses the wire (challenge and HMAC). Before, anybody may have sent
// it: what is not proven has bounds for each source of links, and a deadline.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/time_slice.h"
#include "daemon/membership/control_frames.h"
#include "daemon/membership/coordinated_groups.h"
#include "daemon/membership/group_id.h"
#include "daemon/membership/join_terms.h"
#include "daemon/membership/lost_links.h"
#include "daemon/service/shared_places.h"

namespace tern::daemon {

class Coordinator {
 public:
  // REQUIRES: both outlive this.
  Coordinator(ControlSender& sender, const Clock& clock) : sender_(sender), clock_(clock) {}

  // Joins that came by links and wait, of all sources and of one. Ranks of this node, which have
  // quotas, always find a place.
  static constexpr SharedPlaces::Bounds kJoiners{8192, 1024};
  // An honest member answers a challenge at once, if its link lives.
  static constexpr std::uint64_t kProofNs = 30'000'000'000;
  // As long as a join may wait where nothing else is set.
  static constexpr std::uint64_t kStrangerNs = 3'600'000'000'000;

  // Minted here, or learnt from a rank of this node that joins (after a restart), by this user.
  void learn(const GroupId& id, std::uint32_t user);
  // False: not a message for a coordinator.
  bool on_message(LinkRef from, const nlohmann::json& message);
  // By end_lost() it is forgotten who has joined by it, and the epochs of its nodes end.
  void on_link_lost(LinkRef link, const std::string& why);
  // Tells one group of lost links, ends one epoch that has lost a node, and others until the slice
  // is over. Returns how many epochs it has looked at.
  int end_lost(const TimeSlice& slice);
  bool has_lost() const { return !lost_links_.empty() || !lost_.empty(); }
  // Tells joiners of some groups whom they wait for, where that has changed since they were told.
  // Returns of how many groups.
  int tell_changed(const TimeSlice& slice);
  std::uint64_t next_deadline_ns() const {
    return changed_.empty() ? ~std::uint64_t{0} : changed_.begin()->first;
  }
  // Refuses one join that was not proven in time, and others until the slice is over. False: there
  // may be more.
  bool expire(const TimeSlice& slice);
  // The same of those who would replace a rank that has proven itself.
  bool expire_challengers(const TimeSlice& slice);
  // Begins one child of a split, and others until the slice is over: of each split in turn. Returns
  // how many.
  int begin_children(const TimeSlice& slice);
  bool has_children_to_begin() const { return !divisions_.empty(); }
  // The links by which members or joiners are reached.
  void add_links(std::set<LinkRef>& links) const;
  std::size_t groups() const { return groups_.size(); }
  // Whether a rank that has proven itself waits for others, in any group or to go on in this one.
  bool is_gathering() const;
  bool has_begun(const std::string& uid) const;
  // Those that other nodes are in, or have proven that they want to join: they end with this daemon.
  std::size_t groups_of_others() const;

 private:
  using Group = CoordinatedGroup;
  using Phase = Group::Phase;
  using Part = Group::Part;
  using Asker = Group::Asker;
  using Joiner = Group::Joiner;
  using Node = Group::Node;

  // A rank of a group.
  struct Place {
    const std::string& uid;
    std::uint32_t rank;
  };

  // A node of a group's current epoch.
  struct Member {
    const std::string& uid;
    Group& group;
    Node& node;
  };

  // A split whose ranks have all gathered. Each child takes its ranks with it when it begins.
  struct Division {
    std::string uid;  // of what gathered
    Group gathered;
    std::map<std::int64_t, std::vector<std::uint32_t>> children;  // ranks by colour
    std::map<LinkRef, std::string> lost;  // links of ranks that have gathered, and why
  };

  void on_join(LinkRef from, const std::string& uid, const nlohmann::json& message);
  void on_proof(LinkRef from, const std::string& uid, const nlohmann::json& message);
  void on_withdraw(LinkRef from, const std::string& uid, const nlohmann::json& message);
  void on_ready(const Member& member, const nlohmann::json& message);
  void on_ended(const Member& member, const nlohmann::json& message);
  void on_left(const Member& member, const nlohmann::json& message);
  void challenge(const std::string& uid, std::uint32_t rank, Joiner& joiner);
  // Finds a place for the join, or says why there is none.
  Status admit(const std::string& uid, Joiner& joiner);
  // Whether the join may be one to this id: to a group that was minted, or to a split by a rank of
  // its parent, for which the coordinator then has a group.
  Status judge_split(LinkRef from, const std::string& uid, const JoinTerms& says);
  // Makes room in the list, or says who holds the rank.
  Status vacate(const Place& place, Group::Joiners& list);
  void drop_replaced(const std::string& uid, Group& group, const Joiner& by);
  void divide_gathered(const std::string& uid);
  void evict_early(const std::string& uid);
  // REQUIRES: it has not begun yet.
  void begin_child(Division& division, std::int64_t color);
  void begin_child_of(const Place& place);
  CoordinatedGroups::Children children_to_begin(std::uint32_t user) const;
  void note_loss(const Member& member, const std::string& why);
  void hear_of_lost(const std::string& uid, Group& group);
  void end_if_lost(const std::string& uid);
  void end_gatherings(const std::string& parent, Errc code, const std::string& text);
  void refuse(const Place& place, const Asker& asker, Errc code, const std::string& text);
  void refuse_all(const std::string& uid, Group& group, Errc code, const std::string& text);
  // Refuses one that has been taken in.
  void drop(const Place& place, Errc code, const std::string& text);
  // At once, or when it is due.
  void note_proven(const std::string& uid, Group& group);
  void tell_waiting(const std::string& uid, Group& group);
  void start_epoch(const std::string& uid, Group& group);
  void end_epoch(const std::string& uid, Group& group, Errc code, const std::string& text);

  ControlSender& sender_;
  const Clock& clock_;
  SharedPlaces joiners_{kJoiners};  // outlives the groups
  CoordinatedGroups groups_;
  std::list<Division> divisions_;
  LostLinks lost_links_;
  std::deque<std::string> lost_;  // uids of groups whose epoch has lost a node
  // Those whose joiners have not been told of the last change, and when that is due.
  std::set<std::pair<std::uint64_t, std::string>> changed_;
};

}  // namespace tern::daemon
