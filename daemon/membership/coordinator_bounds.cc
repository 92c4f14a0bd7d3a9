// Which groups and joins go: where there is room for no more, where nobody can come back, and where
// a time is over.

#include <algorithm>
#include <functional>
#include <iterator>

#include "daemon/membership/coordinator.h"

namespace tern::daemon {

// A place for one more group: of the user who has most, one in which nobody is goes. Whoever mints
// without end so takes no place of others. A group's ranks may still come back; this node's next
// join makes it known again.
bool Coordinator::make_room() {
  if (groups_.size() < kMaxGroups) return true;
  std::vector<std::pair<std::size_t, std::uint32_t>> users;
  for (const auto& [user, groups] : of_users_) users.emplace_back(groups.size(), user);
  std::sort(users.begin(), users.end(), std::greater<>());
  return std::any_of(users.begin(), users.end(),
                     [this](const auto& one) { return forget_oldest_idle(one.second); });
}

// False: the user has no group in which nobody is.
bool Coordinator::forget_oldest_idle(std::uint32_t user) {
  const auto of_user = of_users_.find(user);
  for (auto one = of_user->second.begin(); one != of_user->second.end(); ++one) {
    const auto group = groups_.find(one->second);
    if (!group->second.idle()) continue;
    forget(group);
    return true;
  }
  return false;
}

Coordinator::ByUid::iterator Coordinator::forget(ByUid::iterator group) {
  const Group& gone = group->second;
  if (gone.known) {
    const auto of_user = of_users_.find(gone.user);
    of_user->second.erase(gone.last_used);
    if (of_user->second.empty()) of_users_.erase(of_user);
  }
  return groups_.erase(group);
}

bool Coordinator::expire(const TimeSlice& slice) {
  const std::uint64_t now = clock_.now_ns();
  bool is_in_time = true;
  for (auto group = groups_.begin(); is_in_time && group != groups_.end(); ++group) {
    auto& joiners = group->second.joiners;
    for (auto at = joiners.begin(); is_in_time && at != joiners.end();) {
      const auto& [rank, joiner] = *at++;
      if (joiner.proven || joiner.link == kSelf || now < joiner.deadline_ns) continue;
      if (group->second.known) {
        drop({group->first, rank}, Errc::timeout, "no proof of the group's secret came in time");
      } else {
        drop({group->first, rank}, Errc::unknown_group,
             "nobody on the coordinator's node has joined the group; was its daemon restarted? "
             "mint a new id");
      }
      is_in_time = !slice.is_over();
    }
  }
  forget_unused();
  return is_in_time;
}

void Coordinator::forget_unused() {
  for (auto one = groups_.begin(); one != groups_.end();) {
    one = one->second.is_unused() ? forget(one) : std::next(one);
  }
}

void Coordinator::forget_if_unused(const std::string& uid) {
  const auto found = groups_.find(uid);
  if (found != groups_.end() && found->second.is_unused()) forget(found);
}

}  // namespace tern::daemon
