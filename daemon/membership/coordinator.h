#pragma once

// The groups whose id names this daemon: gathers their ranks, says who is where, and spreads the
// news of their end. Messages in, messages out; no I/O. A rank joins by proving that it knows the
// group's secret, which never crosses the wire (challenge and HMAC). Before, anybody may have sent
// it: what is not proven has bounds for each source of links, and a deadline.

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/time_slice.h"
#include "daemon/membership/control_frames.h"
#include "daemon/membership/group_id.h"
#include "daemon/membership/join_terms.h"
#include "daemon/service/shared_places.h"

namespace tern::daemon {

class Coordinator {
 public:
  // REQUIRES: both outlive this.
  Coordinator(ControlSender& sender, const Clock& clock) : sender_(sender), clock_(clock) {}

  // The known ones and the others.
  static constexpr std::size_t kMaxGroups = 4096;
  // Beyond, the user's own oldest group goes in which nobody is, as after a mint.
  static constexpr std::size_t kGroupsPerUser = 1024;
  // Joins that came by links and wait, of all sources and of one. Ranks of this node, which have
  // quotas, always find a place.
  static constexpr SharedPlaces::Bounds kJoiners{8192, 1024};
  // Groups that only joins of other nodes speak of, as after a restart of this daemon.
  static constexpr SharedPlaces::Bounds kStrangers{2048, 256};
  // Groups of a user, children of splits and minted ones together, beyond which nothing is split:
  // the largest group and the split of it into single ranks.
  static constexpr std::size_t kSplitGroupsPerUser = 2 * kGroupsPerUser;
  // An honest member answers a challenge at once, if its link lives.
  static constexpr std::uint64_t kProofNs = 30'000'000'000;
  // As long as a join may wait where nothing else is set.
  static constexpr std::uint64_t kStrangerNs = 3'600'000'000'000;

  // Minted here, or learnt from a rank of this node that joins (after a restart), by this user.
  void learn(const GroupId& id, std::uint32_t user);
  // False: not a message for a coordinator.
  bool on_message(LinkRef from, const nlohmann::json& message);
  // Who has joined by it is forgotten. The epochs of its nodes end by end_lost().
  void on_link_lost(LinkRef link, const std::string& why);
  // Ends one epoch that has lost a node, and others until the slice is over. Returns how many.
  int end_lost(const TimeSlice& slice);
  bool has_lost() const { return !lost_.empty(); }
  // Refuses one join that was not proven in time, and others until the slice is over. False: there
  // may be more.
  bool expire(const TimeSlice& slice);
  // The links by which members or joiners are reached.
  void add_links(std::set<LinkRef>& links) const;
  std::size_t groups() const { return groups_.size(); }
  // Whether a rank that has proven itself waits for others, in any group or to go on in this one.
  bool is_gathering() const;
  bool has_begun(const std::string& uid) const;
  // Those that other nodes are in, or have proven that they want to join: they end with this daemon.
  std::size_t groups_of_others() const;

 private:
  enum class Phase : std::uint8_t { gathering, starting, active };
  // Of a split: the ranks that gather for it, or a group that has come of it.
  enum class Part : std::uint8_t { none, gathering, child };

  // One that has asked, and how it is answered.
  struct Asker {
    LinkRef link = 0;
    std::string nonce;
  };
  struct Joiner {
    LinkRef link = 0;
    JoinTerms says;
    std::uint64_t deadline_ns = 0;  // of what is due from it, until it has proven itself
    std::string challenge;
    bool proven = false;
    std::optional<SharedPlaces::Held> place;  // none: a rank of this node

    Asker asker() const { return {link, says.nonce}; }
  };
  struct Node {
    LinkRef link = 0;
    std::string id;
    std::string address;
    std::vector<std::uint32_t> ranks;
    bool ready = false;
  };
  struct Group {
    bool known = false;
    std::array<std::byte, 32> secret{};
    std::uint32_t epoch = 0;
    std::string incarnation;  // of the epoch, which has a random name too
    std::int64_t splits = 0;  // of the epoch: one gathers at a time
    Phase phase = Phase::gathering;
    std::map<std::uint32_t, Joiner> joiners;  // for the next epoch
    std::uint32_t size = 0;                   // what the first of them said
    std::vector<Node> nodes;                  // of the current epoch
    std::set<std::uint32_t> left;
    std::uint32_t ranks = 0;
    std::uint32_t user = 0;       // who is charged with it, if it is known
    std::uint64_t last_used = 0;  // order of the last mint or join on this node, if it is known
    std::optional<SharedPlaces::Held> place;  // while it is not known
    Part part = Part::none;
    std::string parent;  // uid of what is split; empty: it was minted
    std::string loss;    // of a node, in words: by it the epoch ends; empty: it has all
    Status end;          // why the epoch has ended, while none is current

    bool idle() const { return phase == Phase::gathering && joiners.empty(); }
    // Only joins of other nodes spoke of it, or it is a part of a split, to which nobody comes back.
    bool is_unused() const { return joiners.empty() && (!known || (part != Part::none && idle())); }
    bool is_waited_for() const {
      return std::any_of(joiners.begin(), joiners.end(),
                         [](const auto& one) { return one.second.proven; });
    }
  };
  using ByUid = std::map<std::string, Group>;          // hex
  using ByUse = std::map<std::uint64_t, std::string>;  // uids in the order of their last use

  // A rank of a group.
  struct Place {
    const std::string& uid;
    std::uint32_t rank;
  };

  void on_join(LinkRef from, const std::string& uid, const nlohmann::json& message);
  void on_proof(LinkRef from, const std::string& uid, const nlohmann::json& message);
  void on_withdraw(LinkRef from, const std::string& uid, const nlohmann::json& message);
  void challenge(const std::string& uid, std::uint32_t rank, Joiner& joiner);
  // Finds a place for the join, or says why there is none.
  Status admit(const std::string& uid, Joiner& joiner);
  // Whether the join may be one to this id: to a group that was minted, or to a split by a rank of
  // its parent, for which the coordinator then has a group.
  Status judge_split(LinkRef from, const std::string& uid, const JoinTerms& says);
  void divide_gathered(const std::string& uid);
  bool make_room_for_children(std::uint32_t user, std::size_t children);
  void evict_early(const std::string& uid);
  void begin_child(const GroupId& id, const std::vector<std::uint32_t>& ranks, Group& gathered);
  void end_if_lost(const std::string& uid);
  void end_gatherings(const std::string& parent, Errc code, const std::string& text);
  void refuse(const Place& place, const Asker& asker, Errc code, const std::string& text);
  // Refuses one that has been taken in.
  void drop(const Place& place, Errc code, const std::string& text);
  void tell_waiting(const std::string& uid, Group& group);
  void start_epoch(const std::string& uid, Group& group);
  void end_epoch(const std::string& uid, Group& group, Errc code, const std::string& text);
  bool make_room();
  bool forget_oldest_idle(std::uint32_t user);
  // Those in which nobody is and which nobody can come back to.
  void forget_unused();
  void forget_if_unused(const std::string& uid);
  ByUid::iterator forget(ByUid::iterator group);

  ControlSender& sender_;
  const Clock& clock_;
  SharedPlaces joiners_{kJoiners};
  SharedPlaces strangers_{kStrangers};
  ByUid groups_;
  std::map<std::uint32_t, ByUse> of_users_;  // the known ones
  std::deque<std::string> lost_;             // uids of groups whose epoch has lost a node
  std::uint64_t uses_ = 0;
};

// What a join is proven by.
struct JoinProof {
  std::string uid, member_nonce, challenge, node;
  std::int64_t rank = 0, size = 0;
  std::string split = {};  // text_of() its terms; empty: none
};
// What a member computes and the coordinator compares.
std::string join_proof(std::span<const std::byte> secret, const JoinProof& join);
// The body names the joins by their nonces, which prevents replay.
std::string members_proof(std::span<const std::byte> secret, const std::string& body);
std::uint64_t group_token(std::span<const std::byte> secret, const std::string& uid,
                          std::int64_t epoch, const std::string& incarnation);

}  // namespace tern::daemon
