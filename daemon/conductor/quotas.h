#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/conductor/clients.h"
#include "daemon/conductor/conductor_settings.h"
#include "daemon/conductor/groups.h"
#include "daemon/conductor/joins.h"
#include "daemon/conductor/kept_states.h"
#include "daemon/membership/member_list.h"

namespace tern::daemon {

// What the daemon grants: the limits of all, and of each user, for clients, groups and tensors. It
// counts what the other parts have, and changes nothing. A problem is empty if there is none.
//
// Users who are of one owner (SubUsers) have the share of one. Where the limit of one is less than
// that of all, users who take what they can leave places to who comes next (leaves_room()).
class Quotas {
 public:
  // What is counted. It outlives the quotas.
  struct Counted {
    const Clients& clients;
    const Joins& joins;
    const Groups& groups;
    const KeptStates& kept;
    const Disposal& disposal;
    const Disposal& sealing;
  };

  // REQUIRES: the settings outlive this; a change of them is seen.
  Quotas(const ConductorSettings& settings, const Counted& counted)
      : settings_(settings), counted_(counted) {}

  std::string connection_problem(std::uint32_t user) const;
  std::string hello_problem(const Client& client, std::uint64_t arena_bytes) const;
  // Of a region beside what the client has.
  std::string region_problem(const Client& client, std::uint64_t bytes) const;
  std::string join_problem(std::uint32_t user, const std::string& uid) const;
  std::string tensor_problem(std::uint32_t user) const;
  // Of a name that the group does not remember yet.
  std::string name_problem(std::uint32_t user) const;
  // `freed` bytes of the user's codec state are given back for `bytes` more.
  std::string state_problem(std::uint32_t user, std::uint64_t freed, std::uint64_t bytes) const;
  // The epoch of these members begins.
  std::string link_problem(const JoinSet& set, const MemberList& list) const;
  // Of the epoch the lanes keep so many bytes, beside codec state.
  std::string group_problem(const JoinSet& set, std::uint64_t bytes) const;

 private:
  // What a user has of this node.
  struct Share {
    std::uint64_t groups = 0, ops_in_flight = 0, links = 0;
  };
  // `joining` is the uid of a group of which the user begins another epoch.
  Share share_of(std::uint32_t user, const std::string& joining) const;
  // Whether what belongs to these users is the user's, or of its owner.
  bool is_of(std::uint32_t user, const std::vector<std::uint32_t>& users) const;
  bool is_of(std::uint32_t user, std::uint32_t other) const;
  std::uint64_t state_bytes_of(std::uint32_t user) const;
  // Of one user.
  std::uint64_t max_arena_bytes() const;
  // Arenas, codec state and what is being freed of both.
  std::uint64_t memory_of(std::uint32_t user) const;
  // These, groups, and what the daemon takes for itself.
  std::uint64_t memory_of_all() const;
  // Whether `bytes` more of the user are beyond what the daemon may have, or leave others too
  // little.
  std::string memory_problem(std::uint32_t user, std::uint64_t bytes) const;
  // What else stands against mapping so many bytes of an arena or a region.
  std::string mapping_problem(std::uint32_t uid, std::uint64_t bytes) const;
  std::string descriptor_problem() const;
  std::string mapping_count_problem(std::uint32_t uid) const;

  const ConductorSettings& settings_;
  Counted counted_;
};

}  // namespace tern::daemon
