// Which groups go, where there is room for no more or nobody can come back.

#include <algorithm>
#include <functional>

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
    groups_.erase(group);
    of_user->second.erase(one);
    if (of_user->second.empty()) of_users_.erase(of_user);
    return true;
  }
  return false;
}

// Groups that only joins of other nodes spoke of, and these are gone.
void Coordinator::forget_strangers() {
  std::erase_if(groups_,
                [](const auto& one) { return !one.second.known && one.second.joiners.empty(); });
  forget_parts();
}

// Nobody can come back to a child, or to a gathering that nobody waits in.
void Coordinator::forget_parts() {
  for (auto one = groups_.begin(); one != groups_.end();) {
    const Group& group = one->second;
    if (group.part == Part::none || !group.idle()) {
      ++one;
      continue;
    }
    const auto of_user = of_users_.find(group.user);
    of_user->second.erase(group.last_used);
    if (of_user->second.empty()) of_users_.erase(of_user);
    one = groups_.erase(one);
  }
}

}  // namespace tern::daemon
