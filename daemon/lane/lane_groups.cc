#include "daemon/lane/lane_groups.h"

#include <algorithm>

namespace tern::daemon {

void LaneGroups::add(LaneGroup& group) {
  groups_.push_back(&group);
  by_token_[group.setup().token] = &group;
  by_number_[group.setup().number] = &group;
  const std::uint32_t account = group.setup().account;
  const auto known = std::find_if(users_.begin(), users_.end(), [account](const OfUser& one) {
    return one.account() == account;
  });
  OfUser& user = known != users_.end() ? *known : users_.emplace_back(account);
  user.add(group);
}

void LaneGroups::remove(LaneGroup& group) {
  by_token_.erase(group.setup().token);
  by_number_.erase(group.setup().number);
  std::erase(groups_, &group);
  for (OfUser& user : users_) user.remove(group);
  std::erase_if(users_, [](const OfUser& one) { return one.size() == 0; });
}

void LaneGroups::OfUser::remove(LaneGroup& group) {
  const auto found = std::find(groups_.begin(), groups_.end(), &group);
  if (found == groups_.end()) return;
  // Whose turn it is does not change.
  if (static_cast<std::size_t>(found - groups_.begin()) < next_) --next_;
  groups_.erase(found);
  if (next_ >= groups_.size()) next_ = 0;
}

LaneGroups::OfUser& LaneGroups::take_turn() {
  if (next_ >= users_.size()) next_ = 0;
  return users_[next_++];
}

LaneGroup* LaneGroups::by_number(std::uint64_t number) const {
  const auto found = by_number_.find(number);
  return found == by_number_.end() ? nullptr : found->second;
}

LaneGroups::Addressee LaneGroups::addressee(const wire::FrameHeader& header,
                                            const LanePeer& peer) const {
  const auto found = by_token_.find(header.group);
  if (found == by_token_.end()) return {};
  LaneGroup* const group = found->second;
  const GroupSetup& setup = group->setup();
  if (header.epoch != setup.epoch || header.source_node >= setup.node_ids.size() ||
      setup.node_ids[header.source_node] != peer.id) {
    return {nullptr, true, false};
  }
  // What it fills is noted at the group's own link. Over another one it is nobody's.
  if (group->core().peers()[header.source_node] != &peer) return {nullptr, true, true};
  return {group->core().ops().ended() ? nullptr : group, true, true};
}

bool LaneGroups::any_live_op() const {
  return std::any_of(groups_.begin(), groups_.end(),
                     [](LaneGroup* group) { return group->is_live(); });
}

std::uint64_t LaneGroups::ops_in_flight() const {
  std::uint64_t ops = 0;
  for (const LaneGroup* group : groups_) ops += group->gauges().in_flight();
  return ops;
}

bool LaneGroups::drop_pages(Dropped& dropped) {
  while (dropped.groups < groups_.size()) {
    if (groups_[dropped.groups]->room().drop_pages(dropped.pools++)) return true;
    dropped = {dropped.groups + 1, 0};
  }
  return false;
}

}  // namespace tern::daemon
