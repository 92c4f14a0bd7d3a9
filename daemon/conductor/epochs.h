#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "daemon/conductor/clients.h"
#include "daemon/conductor/conductor_settings.h"
#include "daemon/conductor/groups.h"
#include "daemon/conductor/joins.h"
#include "daemon/conductor/outlets.h"
#include "daemon/conductor/quotas.h"
#include "daemon/membership/member_list.h"
#include "daemon/tuning/tuning.h"

namespace tern::daemon {

// What coordinators say to this node as a member: joins become groups by it, or are refused.
class Epochs {
 public:
  // The parts that a list of members concerns. They outlive this.
  struct Partners {
    const Clients& clients;
    Joins& joins;
    Groups& groups;
    const Quotas& quotas;
    const Tuning* tuning;  // null: all jobs have the weight 1
  };

  // REQUIRES: the settings outlive this; a change of them is seen.
  Epochs(const ConductorSettings& settings, const Outlets& outlets, const Partners& partners)
      : settings_(settings), outlets_(outlets), partners_(partners) {}

  // False: not a message for a member.
  bool on_message(LinkRef from, const nlohmann::json& message);

 private:
  // A list of members as this node sees it.
  struct Roll {
    JoinSet* set = nullptr;                 // null: no join of this node waits for the coordinator
    const MemberList::Node* own = nullptr;  // this node in the list, or null
    std::vector<std::uint32_t> here, gone;  // its ranks: whose joins wait, and whose do not
  };

  void on_members(LinkRef from, const nlohmann::json& message);
  Roll call_roll(LinkRef from, const std::string& uid, const MemberList* list) const;
  bool can_work_with(const MemberList& list) const;
  // This node takes no part in an epoch; its ranks join in vain.
  void refuse(JoinSet& set, std::int64_t epoch, const Error& why);
  // False if the epoch would take too much: then this node's ranks and the coordinator know.
  bool admit(JoinSet& set, const MemberList& list, std::uint64_t memory_bytes);
  static std::uint64_t memory_of(const GroupSetup& setup);
  // Or refuses it where there is no room.
  void begin(JoinSet& set, const MemberList& list, GroupSetup setup);
  GroupSetup setup_of(const JoinSet& set, const MemberList& list) const;
  void add_ranks(MemberGroup& group, JoinSet& set, GroupSetup& setup) const;

  const ConductorSettings& settings_;
  Outlets outlets_;
  Partners partners_;
};

}  // namespace tern::daemon
