#include "daemon/conductor/quotas.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <utility>

#include "base/fd.h"
#include "daemon/access/scope.h"
#include "daemon/membership/hmac.h"

namespace tern::daemon {
namespace {

// Connections there may be for each client: one that comes and one that goes.
constexpr std::size_t kConnectionsPerClient = 2;
// An eighth of the joins that a coordinator holds for all.
constexpr std::size_t kWaitingRanksPerUser = 1024;

std::string limit(const char* name, std::uint64_t value) {
  return std::string(name) + " = " + std::to_string(value);
}

// All smaller numbers are taken, for the kernel gives the lowest that is free: so this is how many
// descriptors the process has, as far as it matters for its limit. -1: there is none left.
int lowest_free_descriptor() { return Fd(::eventfd(0, EFD_CLOEXEC)).get(); }

}  // namespace

// ---- Clients

// Those that have not said hello hold a descriptor each, and are no clients yet.
std::string Quotas::connection_problem(std::uint32_t user) const {
  const Limits& limits = settings_.limits;
  if (counted_.disposal.is_stuck(user)) {
    return "what earlier processes of this user have left is not closed yet; try again later";
  }
  const auto& clients = counted_.clients.all();
  const auto silent = std::count_if(clients.begin(), clients.end(), [user](const auto& one) {
    return !one.second->memory && one.second->credentials.uid == user;
  });
  if (static_cast<std::uint64_t>(silent) >= limits.max_clients_per_user) {
    return "this user has " + limit("max_clients_per_user", limits.max_clients_per_user) +
           " connections that have not said hello";
  }
  if (clients.size() >= kConnectionsPerClient * limits.max_clients) {
    return "the daemon has twice " + limit("max_clients", limits.max_clients) + " connections";
  }
  return descriptor_problem();
}

std::string Quotas::descriptor_problem() const {
  const DescriptorBudget& budget = settings_.descriptors;
  const int taken = lowest_free_descriptor();
  if (taken >= 0 && !budget.is_full(static_cast<std::uint64_t>(taken))) return "";
  return "the daemon has " + (taken < 0 ? "all" : std::to_string(taken)) + " of its " +
         std::to_string(budget.limit) + " descriptors, and keeps " +
         std::to_string(budget.reserve()) + " for others than clients: raise its LimitNOFILE=";
}

std::string Quotas::hello_problem(const Client& client, std::uint64_t arena_bytes) const {
  const Limits& limits = settings_.limits;
  std::uint64_t of_all = 0, of_user = 0, arena_of_user = 0;
  for (const auto& [id, other] : counted_.clients.all()) {
    if (!other->memory) continue;
    ++of_all;
    if (other->credentials.uid != client.credentials.uid) continue;
    ++of_user;
    arena_of_user += other->arena_bytes;
  }
  if (of_all >= limits.max_clients) {
    return "the daemon has " + limit("max_clients", limits.max_clients) + " clients";
  }
  if (of_user >= limits.max_clients_per_user) {
    return "this user has " + limit("max_clients_per_user", limits.max_clients_per_user) +
           " clients";
  }
  if (arena_bytes == 0 || arena_bytes > limits.max_arena_bytes ||
      arena_of_user + arena_bytes > limits.max_arena_bytes) {
    return "an arena of " + std::to_string(arena_bytes) + " bytes beside " +
           std::to_string(arena_of_user) + " exceeds " +
           limit("max_arena_bytes", limits.max_arena_bytes);
  }
  // A job that begins again at once has its arena beside the one that it has just left.
  const std::uint64_t being_freed = counted_.disposal.bytes_of(client.credentials.uid);
  if (being_freed > limits.max_arena_bytes) {
    return std::to_string(being_freed) + " bytes of arenas that this user has left are not freed " +
           "yet, more than " + limit("max_arena_bytes", limits.max_arena_bytes) +
           "; try again later";
  }
  return descriptor_problem();
}

// ---- Groups

Quotas::Share Quotas::share_of(std::uint32_t user, const std::string& joining) const {
  const Scope scope = Scope::of_user(user);
  Share share;
  // Ranks join again before all have left the epoch that has failed, which its successor replaces.
  bool replaced = false;
  for (const auto& [number, group] : counted_.groups.all()) {
    if (group->removing || !scope.has(group->users)) continue;
    if (group->ended && group->uid == joining && !std::exchange(replaced, true)) continue;
    ++share.groups;
    share.links += (group->addresses.size() - 1) * group->lane_count;
    if (!group->ended) share.ops_in_flight += group->max_ops;
  }
  // What this node offers, of which the group will agree on that much at most.
  for (const auto& [uid, set] : counted_.joins.all()) {
    if (uid == joining || !scope.has(set.users())) continue;
    ++share.groups;
    share.ops_in_flight += settings_.ops.max_ops_in_flight;
  }
  return share;
}

std::string Quotas::join_problem(std::uint32_t user, const std::string& uid) const {
  const Limits& limits = settings_.limits;
  const auto& joins = counted_.joins.all();
  const auto known = joins.find(uid);
  if (known == joins.end() && counted_.groups.all().size() + joins.size() >= limits.max_groups) {
    return "the daemon has " + limit("max_groups", limits.max_groups) + " groups";
  }
  std::size_t waiting = 0;
  for (const auto& [other, set] : joins) {
    for (const auto& [rank, joining] : set.ranks) waiting += joining.user == user ? 1 : 0;
  }
  if (waiting >= kWaitingRanksPerUser) {
    return "this user has " + std::to_string(waiting) +
           " ranks that wait for their groups, as many as one may";
  }
  // The first rank of the user has paid for the others.
  if (known != joins.end() && Scope::of_user(user).has(known->second.users())) return "";
  const Share share = share_of(user, uid);
  if (share.groups >= limits.max_groups_per_user) {
    return "this user has " + limit("max_groups_per_user", limits.max_groups_per_user) +
           " groups on this node";
  }
  const std::uint32_t more = settings_.ops.max_ops_in_flight;
  if (share.ops_in_flight + more > limits.max_ops_in_flight_per_user) {
    return "the user's groups may have " + std::to_string(share.ops_in_flight) +
           " operations in flight, and " + std::to_string(more) + " more exceed " +
           limit("max_ops_in_flight_per_user", limits.max_ops_in_flight_per_user);
  }
  return "";
}

std::string Quotas::link_problem(const JoinSet& set, const MemberList& list) const {
  const std::uint32_t most = settings_.limits.max_links_per_user;
  const std::uint64_t links = (list.nodes.size() - 1) * std::uint64_t{list.lanes};
  for (const std::uint32_t user : set.users()) {
    const std::uint64_t taken = share_of(user, to_hex(set.id.uid)).links;
    if (taken + links <= most) continue;
    return "user " + std::to_string(user) + " has " + std::to_string(taken) + " links, and " +
           std::to_string(links) + " more exceed " + limit("max_links_per_user", most);
  }
  return "";
}

// ---- Tensors

// Those of a group count for each of its users.
std::string Quotas::tensor_problem(std::uint32_t user) const {
  const Limits& limits = settings_.limits;
  const Scope scope = Scope::of_user(user);
  std::uint64_t of_all = 0, of_user = 0;
  for (const auto& [number, group] : counted_.groups.all()) {
    of_all += group->tensors.size();
    if (scope.has(group->users)) of_user += group->tensors.size();
  }
  if (of_all >= limits.max_tensors) {
    return "the daemon has " + limit("max_tensors", limits.max_tensors) + " tensors";
  }
  if (of_user >= limits.max_tensors_per_user) {
    return "this user has " + limit("max_tensors_per_user", limits.max_tensors_per_user) +
           " tensors";
  }
  return "";
}

std::uint64_t Quotas::state_bytes_of(std::uint32_t user) const {
  std::uint64_t bytes = counted_.kept.bytes_of_user(user);
  for (const auto& [number, group] : counted_.groups.all()) {
    if (group->uid_of_user == user) bytes += group->tensors.state_bytes();
  }
  return bytes;
}

std::string Quotas::state_problem(std::uint32_t user, std::uint64_t freed,
                                  std::uint64_t bytes) const {
  const std::uint64_t most = settings_.limits.max_state_bytes;
  if (state_bytes_of(user) - freed + bytes <= most) return "";
  return "codec state of " + std::to_string(bytes) + " bytes more exceeds " +
         limit("max_state_bytes", most);
}

}  // namespace tern::daemon
