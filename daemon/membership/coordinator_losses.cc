// Links that are lost, and epochs that end by it.

#include <algorithm>
#include <utility>

#include "daemon/membership/coordinator.h"

namespace tern::daemon {
namespace {

std::string loss_of(const std::string& address, const std::vector<std::uint32_t>& ranks,
                    const std::string& why) {
  std::string list;
  for (const auto rank : ranks) {
    if (!list.empty()) list += ',';
    list += std::to_string(rank);
  }
  return "the daemon at " + address + " (ranks " + list + ") was lost: " + why;
}

}  // namespace

void Coordinator::on_link_lost(LinkRef link, const std::string& why) {
  lost_links_.add(link, why);
  for (Division& division : divisions_) division.lost.emplace(link, why);
}

void Coordinator::hear_of_lost(const std::string& uid, Group& group) {
  if (lost_links_.empty()) return;
  group.forget_joiners_by([this](LinkRef link) { return lost_links_.why(link) != nullptr; });
  for (Node& node : group.nodes) {
    if (const auto* const why = lost_links_.why(node.link)) note_loss({uid, group, node}, *why);
  }
}

void Coordinator::note_loss(const Member& member, const std::string& why) {
  if (!member.group.loss.empty()) return;
  member.group.loss = loss_of(member.node.address, member.node.ranks, why);
  lost_.push_back(member.uid);
}

int Coordinator::end_lost(const TimeSlice& slice) {
  lost_links_.tell(groups_, slice, [this](const std::string& uid, Group& group) {
    hear_of_lost(uid, group);
    groups_.forget_if_unused(uid);
  });
  int ended = 0;
  while (!lost_.empty()) {
    const std::string uid = std::move(lost_.front());
    lost_.pop_front();
    end_if_lost(uid);
    ++ended;
    if (slice.is_over()) break;
  }
  return ended;
}

// Also where somebody speaks of the group before its turn has come.
void Coordinator::end_if_lost(const std::string& uid) {
  Group* const group = groups_.find(uid);
  if (group == nullptr) return;
  hear_of_lost(uid, *group);
  if (group->loss.empty()) return;
  end_epoch(uid, *group, Errc::peer_lost, std::string(group->loss));
  groups_.forget_unused();
}

}  // namespace tern::daemon
