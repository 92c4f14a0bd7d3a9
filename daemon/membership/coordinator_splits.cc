// Splits: who may gather, and what becomes of those who have.

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/check.h"
#include "daemon/membership/coordinator.h"
#include "daemon/membership/hmac.h"

namespace tern::daemon {
namespace {

constexpr const char* kOfASplit = "the group has come of a split, and nobody else can join it";

// The coordinator is the place itself.
GroupId id_of(const std::string& uid, const std::array<std::byte, 32>& secret) {
  GroupId id;
  TERN_CHECK(from_hex(uid, id.uid));
  id.secret = secret;
  return id;
}

}  // namespace

// What somebody who knows the secret has joined under the id of a split, before the split.
void Coordinator::evict_early(const std::string& uid) {
  Group* const found = groups_.find(uid);
  if (found == nullptr || found->part != Part::none) return;
  Group& group = *found;
  refuse_all(uid, group, Errc::permission_denied, kOfASplit);
  end_epoch(uid, group, Errc::permission_denied, kOfASplit);
  groups_.forget(uid);
}

Status Coordinator::judge_split(LinkRef from, const std::string& uid, const JoinTerms& says) {
  if (!says.split) {
    const Group* const known = groups_.find(uid);
    if (known == nullptr || known->part == Part::none) return {};
    return fail(Errc::permission_denied, kOfASplit);
  }
  const SplitTerms& split = *says.split;
  end_if_lost(split.parent);
  const Group* const found = groups_.find(split.parent);
  if (found == nullptr || found->phase != Phase::active || found->epoch != split.epoch) {
    // Its daemon may not have heard of the end yet, and the end names who was lost.
    if (found != nullptr && found->epoch == split.epoch && !found->end) return found->end;
    return fail(Errc::epoch_ended, "the epoch of the group that is split has ended");
  }
  // Only the node of a rank speaks for it, so that nobody takes the place of another.
  const Group& parent = *found;
  const auto rank = static_cast<std::uint32_t>(says.rank);
  const bool is_member =
      std::any_of(parent.nodes.begin(), parent.nodes.end(),
                  [from, rank](const Node& node) { return node.link == from && node.has(rank); });
  if (!is_member || parent.left.contains(rank) || says.size != parent.ranks) {
    return fail(Errc::permission_denied,
                "rank " + std::to_string(rank) + " of this node is not in the group that is split");
  }
  // So that of a group one gathering is there at most, whatever its members' daemons say.
  if (split.sequence != parent.splits) {
    return fail(Errc::protocol_error, "the group has been split " + std::to_string(parent.splits) +
                                          " times, and rank " + std::to_string(rank) + " says " +
                                          std::to_string(split.sequence) +
                                          "; its ranks must split it alike");
  }
  const GroupId gathering = gathering_id(id_of(split.parent, parent.secret),
                                         {split.epoch, parent.incarnation, split.sequence});
  if (to_hex(gathering.uid) != uid) {
    return fail(
        Errc::bad_secret,
        "the split's id is not derived from the group's secret, or that daemon is of another "
        "version: install the same on all nodes");
  }
  evict_early(uid);
  learn(gathering, parent.user);
  Group& made = groups_.at(uid);
  made.part = Part::gathering;
  made.parent = split.parent;
  return {};
}

void Coordinator::divide_gathered(const std::string& uid) {
  Group gathered = groups_.take(uid);
  std::vector<SplitRank> said;
  for (auto& [rank, joiner] : gathered.joiners) {
    said.push_back({joiner.says.split->color, joiner.says.split->key, rank});
    joiner.place.reset();  // it waits for no other rank
  }
  auto divided = divide(said);
  CoordinatedGroups::Children children = children_to_begin(gathered.user);
  children.of_user += divided.size();
  children.of_all += divided.size();
  if (!groups_.make_room_for_children(gathered.user, children)) {
    const std::string why =
        "the coordinator has " + std::to_string(groups_.size()) + " groups, of this group's user " +
        std::to_string(groups_.of_user(gathered.user)) + ", and no room for " +
        std::to_string(divided.size()) + " more; leave groups that are not needed";
    return refuse_all(uid, gathered, Errc::quota_exceeded, why);
  }
  ++groups_.at(gathered.parent).splits;
  divisions_.push_back({uid, std::move(gathered), std::move(divided), {}});
}

int Coordinator::begin_children(const TimeSlice& slice) {
  int begun = 0;
  while (!divisions_.empty()) {
    Division& division = divisions_.front();
    begin_child(division, division.children.begin()->first);
    ++begun;
    divisions_.splice(divisions_.end(), divisions_, divisions_.begin());
    if (division.children.empty()) divisions_.pop_back();
    if (slice.is_over()) break;
  }
  return begun;
}

// Its ranks have proven themselves, so that its epoch begins with it.
void Coordinator::begin_child(Division& division, std::int64_t color) {
  const std::vector<std::uint32_t> ranks = division.children.extract(color).mapped();
  Group& gathered = division.gathered;
  Group::Joiners joiners;  // of the child
  for (std::uint32_t place = 0; place < ranks.size(); ++place) {
    Joiner& joiner = joiners[place] = std::move(gathered.joiners.extract(ranks[place]).mapped());
    sender_.send(joiner.link, {{"t", "divided"},
                               {"uid", division.uid},
                               {"rank", ranks[place]},
                               {"nonce", joiner.says.nonce},
                               {"parent", gathered.parent},
                               {"epoch", joiner.says.split->epoch},
                               {"sequence", joiner.says.split->sequence},
                               {"place", place},
                               {"size", ranks.size()}});
    joiner.says.rank = place;
    joiner.says.size = static_cast<std::int64_t>(ranks.size());
  }
  if (color < 0) return;
  const GroupId id = child_id(id_of(division.uid, gathered.secret), color);
  const std::string uid = to_hex(id.uid);
  evict_early(uid);
  learn(id, gathered.user);
  Group& child = groups_.at(uid);
  child.part = Part::child;
  child.parent = gathered.parent;
  child.size = static_cast<std::uint32_t>(ranks.size());
  child.joiners = std::move(joiners);
  if (child.phase == Phase::gathering) start_epoch(uid, child);
  for (Node& node : child.nodes) {
    const auto lost = division.lost.find(node.link);
    if (lost != division.lost.end()) note_loss({uid, child, node}, lost->second);
  }
}

// Before its turn: what is said to the rank from now on comes after what the split made of it.
void Coordinator::begin_child_of(const Place& place) {
  const auto division =
      std::find_if(divisions_.begin(), divisions_.end(),
                   [&place](const Division& one) { return one.uid == place.uid; });
  if (division == divisions_.end()) return;
  const auto child =
      std::find_if(division->children.begin(), division->children.end(), [&place](const auto& one) {
        return std::find(one.second.begin(), one.second.end(), place.rank) != one.second.end();
      });
  if (child == division->children.end()) return;
  begin_child(*division, child->first);
  if (division->children.empty()) divisions_.erase(division);
}

CoordinatedGroups::Children Coordinator::children_to_begin(std::uint32_t user) const {
  CoordinatedGroups::Children children;
  for (const Division& division : divisions_) {
    children.of_all += division.children.size();
    if (division.gathered.user == user) children.of_user += division.children.size();
  }
  return children;
}

// The parent has ended: what gathers to split it gathers in vain.
void Coordinator::end_gatherings(const std::string& parent, Errc code, const std::string& text) {
  for (auto& [uid, group] : groups_) {
    if (group.part != Part::gathering || group.parent != parent) continue;
    refuse_all(uid, group, code, text);
  }
}

}  // namespace tern::daemon
