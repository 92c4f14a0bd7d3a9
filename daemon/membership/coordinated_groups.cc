#include "daemon/membership/coordinated_groups.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>
#include <vector>

#include "daemon/membership/hmac.h"

namespace tern::daemon {

CoordinatedGroup* CoordinatedGroups::find(const std::string& uid) {
  const auto found = by_uid_.find(uid);
  return found == by_uid_.end() ? nullptr : &found->second;
}

const CoordinatedGroup* CoordinatedGroups::find(const std::string& uid) const {
  const auto found = by_uid_.find(uid);
  return found == by_uid_.end() ? nullptr : &found->second;
}

std::size_t CoordinatedGroups::of_user(std::uint32_t user) const {
  const auto found = of_users_.find(user);
  return found == of_users_.end() ? 0 : found->second.size();
}

bool CoordinatedGroups::learn(const GroupId& id, std::uint32_t user) {
  const std::string uid = to_hex(id.uid);
  const CoordinatedGroup* const before = find(uid);
  if ((before == nullptr || !before->known) && of_user(user) >= kPerUser) forget_oldest_idle(user);
  if (!by_uid_.contains(uid)) make_room();
  const auto at = by_uid_.try_emplace(uid).first;
  CoordinatedGroup& group = at->second;
  const bool is_news = !group.known;
  if (is_news) {
    group.known = true;
    group.user = user;
    group.place.reset();
    group.secret = id.secret;
  } else {
    of_users_[group.user].erase(group.last_used);
  }
  group.last_used = ++uses_;
  of_users_[group.user][group.last_used] = &*at;
  return is_news;
}

Status CoordinatedGroups::add_stranger(const std::string& uid, const std::string& source) {
  if (by_uid_.contains(uid)) return {};
  auto place = strangers_.take(source);
  if (!place) {
    return fail(Errc::quota_exceeded,
                "the coordinator holds joins of " + std::to_string(strangers_.of(source)) +
                    " groups from " + source +
                    " that nobody on its node knows, as many as it has room for; try again later");
  }
  if (!make_room()) {
    return fail(Errc::quota_exceeded, "the coordinator has " + std::to_string(kMostGroups) +
                                          " groups with ranks, as many as it has room for; try "
                                          "again later");
  }
  by_uid_[uid].place = std::move(place);
  return {};
}

// A place for one more group: of the user who has most, one in which nobody is goes. Whoever mints
// without end so takes no place of others. A group's ranks may still come back; this node's next
// join makes it known again.
bool CoordinatedGroups::make_room() {
  if (by_uid_.size() < kMostGroups) return true;
  std::vector<std::pair<std::size_t, std::uint32_t>> users;
  users.reserve(of_users_.size());
  for (const auto& [user, groups] : of_users_) users.emplace_back(groups.size(), user);
  std::sort(users.begin(), users.end(), std::greater<>());
  return std::any_of(users.begin(), users.end(),
                     [this](const auto& one) { return forget_oldest_idle(one.second); });
}

bool CoordinatedGroups::make_room_for_children(std::uint32_t user, const Children& children) {
  while (size() + children.of_all > kMostGroups ||
         of_user(user) + children.of_user > kPerUserWhoSplits) {
    if (!forget_oldest_idle(user)) return false;
  }
  return true;
}

// False: the user has no group in which nobody is.
bool CoordinatedGroups::forget_oldest_idle(std::uint32_t user) {
  const auto of_user = of_users_.find(user);
  if (of_user == of_users_.end()) return false;
  const auto oldest = std::find_if(of_user->second.begin(), of_user->second.end(),
                                   [](const auto& one) { return one.second->second.idle(); });
  if (oldest == of_user->second.end()) return false;
  forget(std::string(oldest->second->first));
  return true;
}

void CoordinatedGroups::uncharge(const CoordinatedGroup& group) {
  if (!group.known) return;
  const auto of_user = of_users_.find(group.user);
  of_user->second.erase(group.last_used);
  if (of_user->second.empty()) of_users_.erase(of_user);
}

void CoordinatedGroups::forget(const std::string& uid) { take(uid); }

CoordinatedGroup CoordinatedGroups::take(const std::string& uid) {
  auto taken = by_uid_.extract(uid);
  uncharge(taken.mapped());
  return std::move(taken.mapped());
}

void CoordinatedGroups::forget_unused() {
  for (auto one = by_uid_.begin(); one != by_uid_.end();) {
    if (!one->second.is_unused()) {
      ++one;
      continue;
    }
    uncharge(one->second);
    one = by_uid_.erase(one);
  }
}

void CoordinatedGroups::forget_if_unused(const std::string& uid) {
  const CoordinatedGroup* const group = find(uid);
  if (group != nullptr && group->is_unused()) forget(uid);
}

}  // namespace tern::daemon
