// What the daemon grants: the limits of all, and of each user, for clients, groups and tensors.

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "daemon/conductor/conductor.h"
#include "daemon/membership/hmac.h"
#include "daemon/service/log.h"

namespace tern::daemon {
namespace {

// Connections there may be for each client: one that comes and one that goes.
constexpr std::size_t kConnectionsPerClient = 2;
// An eighth of the joins that a coordinator holds for all.
constexpr std::size_t kWaitingRanksPerUser = 1024;

std::string limit(const char* name, std::uint64_t value) {
  return std::string(name) + " = " + std::to_string(value);
}

}  // namespace

void Conductor::count_quota_refusal(const Client& client, const std::string& text) {
  ++counters_->quota_refusals;
  log_user(client, "was refused: " + text);
}

void Conductor::refuse_quota(const Client& client, std::uint64_t request, const std::string& text) {
  count_quota_refusal(client, text);
  answer(client.id, request, Errc::quota_exceeded, text);
}

// ---- Clients

// Those that have not said hello hold a descriptor each, and are no clients yet.
std::string Conductor::connection_problem(std::uint32_t user) const {
  const auto silent = std::count_if(clients_.begin(), clients_.end(), [user](const auto& one) {
    return !one.second->memory && one.second->credentials.uid == user;
  });
  if (static_cast<std::uint64_t>(silent) >= settings_.max_clients_per_user) {
    return "this user has " + limit("max_clients_per_user", settings_.max_clients_per_user) +
           " connections that have not said hello";
  }
  if (clients_.size() >= kConnectionsPerClient * settings_.max_clients) {
    return "the daemon has twice " + limit("max_clients", settings_.max_clients) + " connections";
  }
  return "";
}

std::string Conductor::hello_problem(const Client& client, std::uint64_t arena_bytes) const {
  std::uint64_t of_all = 0, of_user = 0, arena_of_user = 0;
  for (const auto& [id, other] : clients_) {
    if (!other->memory) continue;
    ++of_all;
    if (other->credentials.uid != client.credentials.uid) continue;
    ++of_user;
    arena_of_user += other->arena_bytes;
  }
  if (of_all >= settings_.max_clients) {
    return "the daemon has " + limit("max_clients", settings_.max_clients) + " clients";
  }
  if (of_user >= settings_.max_clients_per_user) {
    return "this user has " + limit("max_clients_per_user", settings_.max_clients_per_user) +
           " clients";
  }
  if (arena_bytes == 0 || arena_bytes > settings_.max_arena_bytes ||
      arena_of_user + arena_bytes > settings_.max_arena_bytes) {
    return "an arena of " + std::to_string(arena_bytes) + " bytes beside " +
           std::to_string(arena_of_user) + " exceeds " +
           limit("max_arena_bytes", settings_.max_arena_bytes);
  }
  return "";
}

// ---- Groups

std::vector<std::uint32_t> Conductor::users_of(
    const MemberGroup& group, const std::map<std::uint64_t, std::unique_ptr<Client>>& clients) {
  std::vector<std::uint32_t> users;
  for (const MemberRank& rank : group.ranks) {
    users.push_back(clients.at(rank.client)->credentials.uid);
  }
  std::sort(users.begin(), users.end());
  users.erase(std::unique(users.begin(), users.end()), users.end());
  return users;
}

Conductor::UserShare Conductor::share_of(std::uint32_t user, const std::string& joining) const {
  const Scope scope = Scope::of_user(user);
  UserShare share;
  // Ranks join again before all have left the epoch that has failed, which its successor replaces.
  bool replaced = false;
  for (const auto& [number, group] : groups_) {
    if (group->removing || !scope.has(group->users)) continue;
    if (group->ended && group->uid == joining && !std::exchange(replaced, true)) continue;
    ++share.groups;
    share.links += (group->addresses.size() - 1) * group->lane_count;
    if (!group->ended) share.ops_in_flight += group->max_ops;
  }
  // What this node offers, of which the group will agree on that much at most.
  for (const auto& [uid, set] : joins_) {
    if (uid == joining || !scope.has(set.users())) continue;
    ++share.groups;
    share.ops_in_flight += settings_.max_ops_in_flight;
  }
  return share;
}

std::string Conductor::join_problem(std::uint32_t user, const std::string& uid) const {
  const auto known = joins_.find(uid);
  if (known == joins_.end() && groups_.size() + joins_.size() >= settings_.max_groups) {
    return "the daemon has " + limit("max_groups", settings_.max_groups) + " groups";
  }
  std::size_t waiting = 0;
  for (const auto& [other, set] : joins_) {
    for (const auto& [rank, joining] : set.ranks) waiting += joining.user == user ? 1 : 0;
  }
  if (waiting >= kWaitingRanksPerUser) {
    return "this user has " + std::to_string(waiting) +
           " ranks that wait for their groups, as many as one may";
  }
  // The first rank of the user has paid for the others.
  if (known != joins_.end() && Scope::of_user(user).has(known->second.users())) return "";
  const UserShare share = share_of(user, uid);
  if (share.groups >= settings_.max_groups_per_user) {
    return "this user has " + limit("max_groups_per_user", settings_.max_groups_per_user) +
           " groups on this node";
  }
  if (share.ops_in_flight + settings_.max_ops_in_flight > settings_.max_ops_in_flight_per_user) {
    return "the user's groups may have " + std::to_string(share.ops_in_flight) +
           " operations in flight, and " + std::to_string(settings_.max_ops_in_flight) +
           " more exceed " +
           limit("max_ops_in_flight_per_user", settings_.max_ops_in_flight_per_user);
  }
  return "";
}

std::string Conductor::link_problem(const JoinSet& set, const MemberList& list) const {
  const std::uint64_t links = (list.nodes.size() - 1) * std::uint64_t{list.lanes};
  for (const std::uint32_t user : set.users()) {
    const std::uint64_t taken = share_of(user, to_hex(set.id.uid)).links;
    if (taken + links <= settings_.max_links_per_user) continue;
    return "user " + std::to_string(user) + " has " + std::to_string(taken) + " links, and " +
           std::to_string(links) + " more exceed " +
           limit("max_links_per_user", settings_.max_links_per_user);
  }
  return "";
}

bool Conductor::admit_epoch(JoinSet& set, const MemberList& list) {
  const std::string problem = link_problem(set, list);
  if (problem.empty()) return true;
  ++counters_->quota_refusals;
  refuse_epoch(set, list.epoch, Errc::quota_exceeded, problem);
  return false;
}

// ---- Tensors

// Those of a group count for each of its users.
std::string Conductor::tensor_problem(std::uint32_t user) const {
  const Scope scope = Scope::of_user(user);
  std::uint64_t of_all = 0, of_user = 0;
  for (const auto& [number, group] : groups_) {
    of_all += group->tensors.size();
    if (scope.has(group->users)) of_user += group->tensors.size();
  }
  if (of_all >= settings_.max_tensors) {
    return "the daemon has " + limit("max_tensors", settings_.max_tensors) + " tensors";
  }
  if (of_user >= settings_.max_tensors_per_user) {
    return "this user has " + limit("max_tensors_per_user", settings_.max_tensors_per_user) +
           " tensors";
  }
  return "";
}

}  // namespace tern::daemon
