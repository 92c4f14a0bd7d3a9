#include "daemon/conductor/quotas.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <utility>

#include "base/fd.h"
#include "daemon/membership/hmac.h"
#include "daemon/service/shared_places.h"
#include "shm/segment.h"

namespace tern::daemon {
namespace {

// Connections there may be for each client: one that comes and one that goes.
constexpr std::size_t kConnectionsPerClient = 2;
// An eighth of the joins that a coordinator holds for all.
constexpr std::size_t kWaitingRanksPerUser = 1024;

// A user may have so many times the memory that is left to others: alone on a node three quarters,
// the next user three quarters of the rest.
constexpr std::uint64_t kPartsOfMemory = 3;
// What lanes keep of all groups, with the room that is promised to other nodes: one part of the
// daemon's memory, or so much where it has little. Who comes first may have half of that, which is
// more than a group of 64 nodes takes on one lane.
constexpr std::uint64_t kPartsForGroups = 2;
constexpr std::uint64_t kLeastForGroups = std::uint64_t{512} << 20;

// The kernel cuts the mapping of an arena or a region where its parts are guarded differently.
constexpr std::uint64_t kMappingsOfEach = 3;
// Programs, threads, slabs, a room for each lane of a group, and what is being freed.
constexpr std::uint64_t kOtherMappings = 8192;

std::string limit(const char* name, std::uint64_t value) {
  return std::string(name) + " = " + std::to_string(value);
}

// What the operator can do; the unit's sandbox hides sysctls.
std::string more_mappings(const MappingLimit& kernel) {
  const std::string sysctl = limit("vm.max_map_count", kernel.count);
  if (kernel.is_known) return ", or raise the sysctl " + sysctl + " and start the daemon again";
  return ". The daemon supposes " + sysctl + ", because it cannot read the sysctl; with " +
         "ProcSubset=all in a drop-in of its unit it reads it when it starts";
}

// Of something that there is for all and for one: how much is taken, and the limits.
struct Taken {
  std::uint64_t of_user, of_all;
  std::uint64_t max_of_user, max_of_all;

  // Whether one more would leave too few to others. An operator who lets one user have everything
  // wants that.
  bool crowds_out() const {
    return max_of_user < max_of_all && !leaves_room(of_user, of_all, max_of_all);
  }
};

std::string crowding(const Taken& taken, const char* what, const char* name) {
  return "this user has " + std::to_string(taken.of_user) + " " + what + ", and the " +
         std::to_string(taken.max_of_all - taken.of_all) + " that are left of " +
         limit(name, taken.max_of_all) + " are for users who have fewer";
}

// Of memory, where so much is taken.
std::string shortage(std::uint64_t bytes, std::uint64_t taken, std::uint64_t most) {
  if (bytes <= most - std::min(most, taken)) return "";
  return std::to_string(bytes) + " bytes more beside " + std::to_string(taken) + " exceed " +
         limit("max_memory_bytes", most) +
         " of all users and the daemon: free some memory, or ask for less";
}

// All smaller numbers are taken, for the kernel gives the lowest that is free: so this is how many
// descriptors the process has, as far as it matters for its limit. -1: there is none left.
int lowest_free_descriptor() { return Fd(::eventfd(0, EFD_CLOEXEC)).get(); }

}  // namespace

bool Quotas::is_of(std::uint32_t user, std::uint32_t other) const {
  return settings_.sub_users.owner_of(user) == settings_.sub_users.owner_of(other);
}

bool Quotas::is_of(std::uint32_t user, const std::vector<std::uint32_t>& users) const {
  return std::any_of(users.begin(), users.end(),
                     [&](const std::uint32_t other) { return is_of(user, other); });
}

// ---- Clients

// Those that have not said hello hold a descriptor each, and are no clients yet.
std::string Quotas::connection_problem(std::uint32_t user) const {
  const Limits& limits = settings_.limits;
  const std::uint32_t account = settings_.sub_users.owner_of(user);
  if (counted_.disposal.is_stuck(account)) {
    return "what earlier processes of this user have left is not closed yet; try again later";
  }
  if (counted_.sealing.is_stuck(account)) {
    return "memory of other processes of this user is not sealed yet: they punch holes into it";
  }
  const auto& clients = counted_.clients.all();
  const auto silent = std::count_if(clients.begin(), clients.end(), [&](const auto& one) {
    return !one.second->memory && is_of(user, one.second->credentials.uid);
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
    if (!is_of(client.credentials.uid, other->credentials.uid)) continue;
    ++of_user;
    arena_of_user += other->memory_bytes();
  }
  if (of_all >= limits.max_clients) {
    return "the daemon has " + limit("max_clients", limits.max_clients) + " clients";
  }
  if (of_user >= limits.max_clients_per_user) {
    return "this user has " + limit("max_clients_per_user", limits.max_clients_per_user) +
           " clients";
  }
  const Taken clients{of_user, of_all, limits.max_clients_per_user, limits.max_clients};
  if (clients.crowds_out()) return crowding(clients, "clients", "max_clients");
  const std::uint64_t most = max_arena_bytes();
  if (arena_bytes == 0 || arena_bytes > most || arena_of_user + arena_bytes > most) {
    return "an arena of " + std::to_string(arena_bytes) + " bytes beside " +
           std::to_string(arena_of_user) + " exceeds " + limit("max_arena_bytes", most) +
           ": connect with smaller arena_bytes";
  }
  return mapping_problem(client.credentials.uid, arena_bytes);
}

// A job that begins again at once has its arena beside the one that it has just left.
std::string Quotas::mapping_problem(std::uint32_t uid, std::uint64_t bytes) const {
  const std::uint64_t most = max_arena_bytes();
  const std::uint32_t account = settings_.sub_users.owner_of(uid);
  // What waits there holds descriptors, however small it is.
  if (counted_.disposal.is_stuck(account)) {
    return "what this user has left before is not closed yet; try again later";
  }
  const std::uint64_t being_freed = counted_.disposal.bytes_of(account);
  if (being_freed > most) {
    return std::to_string(being_freed) + " bytes of arenas that this user has left are not freed " +
           "yet, more than " + limit("max_arena_bytes", most) + "; try again later";
  }
  if (std::string why = memory_problem(uid, bytes); !why.empty()) return why;
  if (std::string why = mapping_count_problem(uid); !why.empty()) return why;
  return descriptor_problem();
}

// Without a mapping left no thread starts and no memory is had.
std::string Quotas::mapping_count_problem(std::uint32_t uid) const {
  std::uint64_t of_all = 0, of_user = 0;
  for (const auto& [id, other] : counted_.clients.all()) {
    const std::uint64_t mapped = (other->memory ? 1 : 0) + other->regions.size();
    of_all += mapped;
    if (is_of(uid, other->credentials.uid)) of_user += mapped;
  }
  const MappingLimit& kernel = settings_.max_mappings;
  const std::uint64_t most =
      (kernel.count - std::min(kernel.count, kOtherMappings)) / kMappingsOfEach;
  if (of_all < most && leaves_room(of_user, of_all, most)) return "";
  return "the daemon has mapped " + std::to_string(of_all) + " arenas and regions, " +
         std::to_string(of_user) + " of this user, and may map " + std::to_string(most) +
         ": free some of them" + more_mappings(kernel);
}

std::string Quotas::region_problem(const Client& client, std::uint64_t bytes) const {
  if (client.regions.size() >= shm::kMaxRegions) {
    return "the client has " + std::to_string(shm::kMaxRegions) +
           " regions, as many as one may; free one, or make larger ones";
  }
  const auto not_open = std::count_if(client.regions.begin(), client.regions.end(),
                                      [](const auto& one) { return !one.second->is_open; });
  if (static_cast<std::uint64_t>(not_open) >= DescriptorBudget::kRegionsNotOpen) {
    return "the client has " + std::to_string(not_open) +
           " regions that are not open, as many as one may: open or free one";
  }
  std::uint64_t taken = 0;
  for (const auto& [id, other] : counted_.clients.all()) {
    if (is_of(client.credentials.uid, other->credentials.uid)) taken += other->memory_bytes();
  }
  const std::uint64_t most = max_arena_bytes();
  if (bytes == 0 || bytes > most || taken + bytes > most) {
    return "a region of " + std::to_string(bytes) + " bytes beside " + std::to_string(taken) +
           " exceeds " + limit("max_arena_bytes", most);
  }
  return mapping_problem(client.credentials.uid, bytes);
}

// ---- Groups

Quotas::Share Quotas::share_of(std::uint32_t user, const std::string& joining) const {
  Share share;
  // Ranks join again before all have left the epoch that has failed, which its successor replaces.
  bool replaced = false;
  for (const auto& [number, group] : counted_.groups.all()) {
    if (group->phase == MemberGroup::Phase::removing || !is_of(user, group->users)) continue;
    if (group->has_ended() && group->uid == joining && !std::exchange(replaced, true)) continue;
    ++share.groups;
    share.links += (group->addresses.size() - 1) * group->lane_count;
    if (!group->has_ended()) share.ops_in_flight += group->max_ops;
  }
  // What this node offers, of which the group will agree on that much at most.
  for (const auto& [uid, set] : counted_.joins.all()) {
    if (uid == joining || !is_of(user, set.users())) continue;
    ++share.groups;
    share.ops_in_flight += settings_.ops.max_ops_in_flight;
  }
  return share;
}

std::string Quotas::join_problem(std::uint32_t user, const std::string& uid) const {
  const Limits& limits = settings_.limits;
  const auto& joins = counted_.joins.all();
  const auto known = joins.find(uid);
  const std::uint64_t groups = counted_.groups.all().size() + joins.size();
  if (known == joins.end() && groups >= limits.max_groups) {
    return "the daemon has " + limit("max_groups", limits.max_groups) + " groups";
  }
  std::size_t waiting = 0;
  for (const auto& [other, set] : joins) {
    for (const auto& [rank, joining] : set.ranks) waiting += is_of(user, joining.user) ? 1 : 0;
  }
  if (waiting >= kWaitingRanksPerUser) {
    return "this user has " + std::to_string(waiting) +
           " ranks that wait for their groups, as many as one may";
  }
  // The first rank of the user has paid for the others.
  if (known != joins.end() && is_of(user, known->second.users())) return "";
  const Share share = share_of(user, uid);
  if (share.groups >= limits.max_groups_per_user) {
    return "this user has " + limit("max_groups_per_user", limits.max_groups_per_user) +
           " groups on this node";
  }
  const Taken taken{share.groups, groups, limits.max_groups_per_user, limits.max_groups};
  if (known == joins.end() && taken.crowds_out()) return crowding(taken, "groups", "max_groups");
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

// The first rank of this node pays, as for the codec state. Arenas do not count here, because their
// pages are the clients' own: who has filled his keeps nobody from joining.
std::string Quotas::group_problem(const JoinSet& set, std::uint64_t bytes) const {
  const std::uint64_t most = settings_.limits.max_memory_bytes;
  if (most == 0) return "";
  const std::uint32_t user = set.ranks.begin()->second.user;
  const std::string joining = to_hex(set.id.uid);
  const std::uint64_t freed = counted_.groups.bytes_being_freed(settings_.sub_users.owner_of(user));
  std::uint64_t of_user = freed;
  std::uint64_t of_all = counted_.groups.bytes_being_freed();
  std::uint64_t others = settings_.own_bytes + counted_.kept.bytes();
  bool replaced = false;  // see share_of()
  for (const auto& [number, group] : counted_.groups.all()) {
    others += group->tensors.state_bytes();
    if (group->has_ended() && group->uid == joining && !std::exchange(replaced, true)) continue;
    of_all += group->memory_bytes;
    if (is_of(user, group->account)) of_user += group->memory_bytes;
  }
  // A job that begins again is not refused for what is still being freed of it.
  if (!replaced) {
    const std::uint64_t own = std::min(freed, bytes);
    of_user -= own;
    of_all -= own;
  }
  const std::uint64_t for_groups = std::max(kLeastForGroups, most / kPartsForGroups);
  const std::uint64_t left = for_groups - std::min(for_groups, of_all + bytes);
  if (of_user + bytes > left) {
    return "this user's groups keep " + std::to_string(of_user) + " bytes, and " +
           std::to_string(bytes) + " more leave less than as much to others of the " +
           std::to_string(for_groups) + " that are for groups: leave some, or lower lanes, " +
           "max_ops_in_flight or eager_bytes";
  }
  return shortage(bytes, others + of_all, most);
}

// ---- Tensors

// Those of a group count for each of its users.
std::string Quotas::tensor_problem(std::uint32_t user) const {
  const Limits& limits = settings_.limits;
  std::uint64_t of_all = 0, of_user = 0;
  for (const auto& [number, group] : counted_.groups.all()) {
    of_all += group->tensors.size();
    if (is_of(user, group->users)) of_user += group->tensors.size();
  }
  if (of_all >= limits.max_tensors) {
    return "the daemon has " + limit("max_tensors", limits.max_tensors) + " tensors";
  }
  if (of_user >= limits.max_tensors_per_user) {
    return "this user has " + limit("max_tensors_per_user", limits.max_tensors_per_user) +
           " tensors";
  }
  const Taken taken{of_user, of_all, limits.max_tensors_per_user, limits.max_tensors};
  if (taken.crowds_out()) return crowding(taken, "tensors", "max_tensors");
  return "";
}

// Some hundred bytes each, with a word for each local rank, which no other limit counts. Those of a
// group that is removed go soon: a job that begins again may declare the same names meanwhile.
std::string Quotas::name_problem(std::uint32_t user) const {
  const std::uint64_t most = settings_.limits.max_tensors_per_user;
  std::uint64_t taken = 0;
  for (const auto& [number, group] : counted_.groups.all()) {
    if (group->phase == MemberGroup::Phase::removing || !is_of(user, group->users)) continue;
    taken += group->names.size();
  }
  if (taken < most) return "";
  return "this user's groups remember " + std::to_string(taken) +
         " names of tensors, released ones too, and may remember " +
         limit("max_tensors_per_user", most) +
         ": declare names again that were released, or leave the group and join again";
}

std::uint64_t Quotas::state_bytes_of(std::uint32_t user) const {
  std::uint64_t bytes = counted_.kept.bytes_of_user(user);
  for (const auto& [number, group] : counted_.groups.all()) {
    if (is_of(user, group->account)) bytes += group->tensors.state_bytes();
  }
  return bytes;
}

std::string Quotas::state_problem(std::uint32_t user, std::uint64_t freed,
                                  std::uint64_t bytes) const {
  const std::uint64_t most = settings_.limits.max_state_bytes;
  if (state_bytes_of(user) - freed + bytes <= most) {
    return memory_problem(user, bytes - std::min(bytes, freed));
  }
  return "codec state of " + std::to_string(bytes) + " bytes more exceeds " +
         limit("max_state_bytes", most);
}

// ---- Memory

std::uint64_t Quotas::max_arena_bytes() const {
  const Limits& limits = settings_.limits;
  if (limits.max_arena_bytes != 0) return limits.max_arena_bytes;
  return limits.max_memory_bytes != 0 ? limits.max_memory_bytes / 4 * 3 : shm::kMaxArenaBytes;
}

std::uint64_t Quotas::memory_of(std::uint32_t user) const {
  std::uint64_t bytes =
      state_bytes_of(user) + counted_.disposal.bytes_of(settings_.sub_users.owner_of(user));
  for (const auto& [id, client] : counted_.clients.all()) {
    if (is_of(user, client->credentials.uid)) bytes += client->memory_bytes();
  }
  return bytes;
}

// Arenas and what is kept of groups count whole: clients and other nodes may fill them at any time.
std::uint64_t Quotas::memory_of_all() const {
  std::uint64_t taken = settings_.own_bytes + counted_.disposal.bytes() + counted_.kept.bytes() +
                        counted_.groups.bytes_being_freed();
  for (const auto& [id, client] : counted_.clients.all()) taken += client->memory_bytes();
  for (const auto& [number, group] : counted_.groups.all()) {
    taken += group->tensors.state_bytes() + group->memory_bytes;
  }
  return taken;
}

std::string Quotas::memory_problem(std::uint32_t user, std::uint64_t bytes) const {
  const std::uint64_t most = settings_.limits.max_memory_bytes;
  if (most == 0 || bytes == 0) return "";
  const std::uint64_t taken = memory_of_all();
  if (std::string why = shortage(bytes, taken, most); !why.empty()) return why;
  // As with places, unless the operator lets one user have everything.
  const std::uint64_t mine = memory_of(user), left = most - taken;
  const bool leaves_enough = mine + bytes <= kPartsOfMemory * (left - bytes);
  if (leaves_enough || max_arena_bytes() >= most) return "";
  return std::to_string(bytes) + " bytes more beside the " + std::to_string(mine) +
         " that this user has leave " + std::to_string(left - bytes) + " of " +
         limit("max_memory_bytes", most) + " to others, less than a third as much: free some " +
         "memory, or ask for less";
}

}  // namespace tern::daemon
