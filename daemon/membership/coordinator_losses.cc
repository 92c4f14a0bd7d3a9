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
  for (auto& [uid, group] : groups_) {
    group.forget_joiners(link);
    note_loss(uid, group, link, why);
  }
  for (Division& division : divisions_) division.lost.emplace(link, why);
  groups_.forget_unused();
}

void Coordinator::note_loss(const std::string& uid, Group& group, LinkRef link,
                            const std::string& why) {
  const auto node = std::find_if(group.nodes.begin(), group.nodes.end(),
                                 [link](const Node& one) { return one.link == link; });
  if (node == group.nodes.end() || !group.loss.empty()) return;
  group.loss = loss_of(node->address, node->ranks, why);
  lost_.push_back(uid);
}

int Coordinator::end_lost(const TimeSlice& slice) {
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
  if (group == nullptr || group->loss.empty()) return;
  end_epoch(uid, *group, Errc::peer_lost, std::string(group->loss));
  groups_.forget_unused();
}

}  // namespace tern::daemon
