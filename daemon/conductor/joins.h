#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/time_slice.h"
#include "daemon/conductor/clients.h"
#include "daemon/conductor/conductor_settings.h"
#include "daemon/conductor/outlets.h"
#include "daemon/conductor/refusals.h"
#include "daemon/membership/group_split.h"
#include "daemon/membership/join_set.h"

namespace tern::daemon {

// What a client asks for when a rank joins.
struct JoinRequest {
  GroupId id;
  std::string uid;
  std::uint32_t rank = 0;
  shm::GroupJoinPacket packet{};

  struct Split {
    SplitTerms terms;
    LinkRef coordinator = kSelf;  // of the parent
    std::string lineage;          // of the split
  };
  std::optional<Split> split;  // none: a client has named the id
};

// What a join to a split becomes.
struct ChildPlace {
  GroupId id;
  std::uint32_t rank = 0;
  std::string lineage;
};

// The joins of this node's ranks, until their epoch begins or they are refused.
class Joins {
 public:
  using Map = std::map<std::string, JoinSet>;  // by uid

  // REQUIRES: what is given outlives this; a change of the settings is seen.
  Joins(const ConductorSettings& settings, const Outlets& outlets, const Clients& clients,
        Refusals& refusals)
      : settings_(settings), outlets_(outlets), clients_(clients), refusals_(refusals) {}

  const Map& all() const { return joins_; }
  // The set that waits for this coordinator's word. Null: there is none.
  JoinSet* find(LinkRef coordinator, const std::string& uid);
  // Where the coordinators of joining groups are.
  void add_links(std::set<LinkRef>& links) const;
  std::uint64_t next_deadline_ns() const;
  // Whether one has been refused since the last call.
  bool take_failed() { return std::exchange(failed_, false); }

  // ---- From clients
  // What the packet asks for. `request.uid` tells how far it could be read.
  Status read(const shm::GroupJoinPacket& packet, JoinRequest& request) const;
  // Whether this daemon coordinates the group.
  bool is_here(const GroupId& id) const;
  // Begins a join, or refuses it. False: it was refused.
  bool add(const Client& client, const JoinRequest& request);
  // The client is gone: its joins are withdrawn.
  void drop_client(std::uint64_t client);

  // ---- From the coordinator
  // False: not a message about joins of this node.
  bool on_message(LinkRef from, const nlohmann::json& message);
  // The coordinator has divided the ranks of a split. The join goes, and whoever takes it answers,
  // or lets it wait for its child. REQUIRES: the rank waits in the set of this uid.
  JoiningRank take(const std::string& uid, std::uint32_t rank);
  void add_to_child(JoiningRank joining, LinkRef coordinator, const ChildPlace& place);
  // `worked`: the link has been open. `code` is that of a coordinator that takes no link, or ok.
  // What becomes of its joins is settle()'s.
  void on_link_lost(LinkRef link, bool worked, Errc code, const std::string& why);

  // ---- From the conductor
  void refuse(JoinSet& set, std::uint32_t rank, Errc code, const std::string& text);
  void refuse_all(JoinSet& set, Errc code, const std::string& text);
  void end_all(Errc code, const std::string& text);
  // Sets without ranks are forgotten; references to sets hold until then.
  void forget_empty();
  // Asks anew, or refuses, one set or rank whose link is lost or whose time has run out, and others
  // until the slice is over. Returns how many.
  int settle(const TimeSlice& slice);

 private:
  struct LostLink {
    LinkRef link = kSelf;
    bool worked = false;
    Errc code = Errc::ok;
    std::string why;
  };

  // ---- What the coordinator says: of all that wait for a group, and of one join ----
  void on_waiting(LinkRef from, const nlohmann::json& message);
  using HandleAnswer = void (Joins::*)(JoinSet&, JoiningRank&, const nlohmann::json&);
  void on_answer(LinkRef from, const nlohmann::json& message, HandleAnswer handle);
  void on_challenge(JoinSet& set, JoiningRank& joining, const nlohmann::json& message);
  void on_refused(JoinSet& set, JoiningRank& joining, const nlohmann::json& message);
  void on_withdrawn(JoinSet& set, JoiningRank& joining, const nlohmann::json& message);

  Status check(const Client& client, const JoinSet& set, const JoinRequest& request) const;
  nlohmann::json message_of(const JoinRequest& request, const std::string& nonce) const;
  void withdraw(const JoinSet& set, const JoiningRank& joining);
  void prove(const JoinSet& set, JoiningRank& joining, const std::string& challenge);
  void expire_join(JoinSet& set, JoiningRank& joining);
  void evict_early(const std::string& uid);
  void refuse_late(JoinSet& set, const JoiningRank& joining);
  LinkRef link_to(const GroupId& id, std::uint32_t user);
  void move_to(JoinSet& set, LinkRef coordinator);
  bool lose(const LostLink& lost, const TimeSlice& slice);
  bool lose(JoinSet& set, const LostLink& lost, const TimeSlice& slice);
  int expire(const TimeSlice& slice);

  const ConductorSettings& settings_;
  Outlets outlets_;
  const Clients& clients_;
  Refusals& refusals_;
  Map joins_;
  std::deque<LostLink> lost_;  // whose joins are not all settled
  bool failed_ = false;
};

}  // namespace tern::daemon
