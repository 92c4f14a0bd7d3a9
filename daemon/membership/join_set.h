#pragma once

// What the conductor keeps of the joins of this node's ranks, until their epoch begins.

#include <algorithm>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "daemon/membership/control_frames.h"
#include "daemon/membership/group_id.h"
#include "daemon/membership/group_split.h"

namespace tern::daemon {

// A rank of this node that has asked to join and waits for the others.
struct JoiningRank {
  std::uint64_t client = 0;
  std::uint32_t user = 0;
  std::uint64_t request = 0;
  std::uint32_t rank = 0;
  std::string nonce;
  std::uint64_t since_ns = 0;
  std::uint64_t deadline_ns = 0;
  bool challenged = false;          // the coordinator knows the group, and has been sent a proof
  bool late = false;                // its time has run out, and it has been withdrawn
  std::optional<SplitTerms> split;  // none: the client has named the group's id
  nlohmann::json message;
};

// The ranks of this node that gather for the next epoch of one group.
struct JoinSet {
  GroupId id;
  bool of_split = false;
  std::string lineage;  // of the group that it becomes
  LinkRef coordinator = kSelf;
  std::map<std::uint32_t, JoiningRank> ranks;
  std::optional<std::vector<std::uint32_t>> missing;  // as last heard

  // Whether the rank waits by the join that has this nonce, and not by a later one.
  bool waits(std::uint32_t rank, const std::string& nonce) const {
    const auto found = ranks.find(rank);
    return found != ranks.end() && found->second.nonce == nonce;
  }

  // When the first of those that wait came.
  std::uint64_t since_ns() const {
    std::uint64_t first = ~std::uint64_t{0};
    for (const auto& [number, joining] : ranks) first = std::min(first, joining.since_ns);
    return first;
  }

  std::vector<std::uint32_t> users() const {
    std::vector<std::uint32_t> users;
    for (const auto& [number, joining] : ranks) users.push_back(joining.user);
    return users;
  }
};

}  // namespace tern::daemon
