#include "daemon/conductor/groups.h"

#include <algorithm>
#include <utility>

namespace tern::daemon {
namespace {

// Other nodes may have filled the room that was promised to them: hundreds of MiB of a large group,
// which the kernel frees in some ten milliseconds.
Disposal::Some free_lane_by_lane(std::vector<std::unique_ptr<LaneGroup>> lanes) {
  return [held = std::make_shared<decltype(lanes)>(std::move(lanes))] {
    if (held->empty()) return false;
    if (held->back()->room().unmap_some()) return true;
    held->pop_back();
    return !held->empty();
  };
}

}  // namespace

// ---- Which there are ----------------------------------------------------------------------------

MemberGroup* Groups::by_number(std::uint64_t number) const {
  const auto found = groups_.find(number);
  return found == groups_.end() ? nullptr : found->second.get();
}

MemberGroup* Groups::by_epoch(LinkRef coordinator, const std::string& uid,
                              std::int64_t epoch) const {
  for (const auto& [number, group] : groups_) {
    if (group->has_ended() || group->coordinator != coordinator) continue;
    if (group->uid == uid && group->epoch == epoch) return group.get();
  }
  return nullptr;
}

MemberGroup* Groups::of_lane(const LaneGroup* lane_group) const {
  const auto owner = of_lane_.find(lane_group);
  return owner == of_lane_.end() ? nullptr : owner->second;
}

bool Groups::has_member(std::uint64_t client) const {
  return std::any_of(groups_.begin(), groups_.end(), [client](const auto& one) {
    return one.second->rank_of_client(client) != nullptr;
  });
}

bool Groups::has_ops() const {
  for (const auto& [number, group] : groups_) {
    for (const auto& lane : group->lanes) {
      if (lane->gauges().in_flight() > 0) return true;
    }
  }
  return false;
}

void Groups::add_links(std::set<LinkRef>& links) const {
  for (const auto& [number, group] : groups_) links.insert(group->coordinator);
}

std::uint64_t Groups::next_deadline_ns() const {
  if (!lost_.empty()) return outlets_.clock.now_ns();
  std::uint64_t deadline = ~std::uint64_t{0};
  for (const auto& [number, group] : groups_) {
    if (group->phase != MemberGroup::Phase::starting) continue;
    deadline = std::min(deadline, group->start_deadline_ns);
  }
  return deadline;
}

// ---- An epoch begins ----------------------------------------------------------------------------

void Groups::add(std::unique_ptr<MemberGroup> made) {
  MemberGroup& group = *made;
  for (const auto& lane : group.lanes) of_lane_[lane.get()] = &group;
  outlets_.log.write({LogTopic::groups, group.account, spdlog::level::info, log_fields(group)},
                     "group {} epoch {}: {} ranks on {} nodes, {} of them here, {} lanes",
                     short_uid(group.uid), group.epoch, group.size, group.addresses.size(),
                     group.ranks.size(), group.lane_count);
  outlets_.lanes.send_to_group(group, command::AddGroup{});
  groups_[group.number] = std::move(made);
}

void Groups::on_ready(MemberGroup& group) {
  if (++group.lanes_ready != group.lane_count || group.has_ended()) return;
  outlets_.post.send(group.coordinator,
                     {{"t", "ready"}, {"uid", group.uid}, {"epoch", group.epoch}});
}

void Groups::start(MemberGroup& group) {
  if (group.phase != MemberGroup::Phase::starting) return;
  group.phase = MemberGroup::Phase::running;
  for (MemberRank& rank : group.ranks) {
    if (rank.phase != MemberRank::Phase::joining) continue;  // it has gone meanwhile
    rank.phase = MemberRank::Phase::joined;
    if (!group.lineage.empty()) {
      answer_split(group, rank);
      continue;
    }
    auto packet =
        shm::make_packet<shm::GroupJoinedPacket>(shm::PacketKind::group_joined, rank.join_request);
    packet.group = group.number;
    packet.node = static_cast<std::int32_t>(group.node);
    packet.node_count = static_cast<std::int32_t>(group.addresses.size());
    packet.epoch = group.epoch;
    packet.lane_count = group.lane_count;
    packet.chunk_bytes = group.chunk_bytes;
    packet.eager_bytes = group.eager_bytes;
    packet.max_ops_in_flight = group.max_ops;
    packet.last_common_op = group.last_common_op;
    outlets_.answers.send(rank.client, packet);
  }
}

void Groups::answer_split(const MemberGroup& group, const MemberRank& rank) {
  auto packet = shm::make_packet<shm::GroupSplitReplyPacket>(shm::PacketKind::group_split_reply,
                                                             rank.join_request);
  packet.group = group.number;
  packet.node = static_cast<std::int32_t>(group.node);
  packet.node_count = static_cast<std::int32_t>(group.addresses.size());
  packet.epoch = group.epoch;
  packet.lane_count = group.lane_count;
  packet.chunk_bytes = group.chunk_bytes;
  packet.eager_bytes = group.eager_bytes;
  packet.max_ops_in_flight = group.max_ops;
  packet.rank = static_cast<std::int32_t>(rank.rank);
  packet.size = static_cast<std::int32_t>(group.size);
  outlets_.answers.send(rank.client, packet);
}

void Groups::weigh(const TuningPolicy& policy) {
  for (const auto& [number, group] : groups_) {
    const std::uint32_t weight = policy.weight(group->job, group->uid_of_user);
    if (group->phase != MemberGroup::Phase::removing) {
      outlets_.lanes.send_to_group(*group, command::SetWeight{nullptr, weight});
    }
  }
}

// ---- A rank leaves ------------------------------------------------------------------------------

void Groups::on_leave(std::uint64_t client, const shm::GroupLeavePacket& packet) {
  MemberGroup* const group = by_number(packet.group);
  MemberRank* const rank = group != nullptr ? group->rank_of_client(client) : nullptr;
  if (rank == nullptr || rank->phase != MemberRank::Phase::joined) {
    return outlets_.answers.done(client, packet.header.request, Errc::unknown_group,
                                 "this client is not in that group");
  }
  leave(*group, *rank, packet.header.request);
}

void Groups::leave(MemberGroup& group, MemberRank& rank, std::uint64_t request) {
  rank.phase = MemberRank::Phase::leaving;
  rank.leave_request = request;
  const auto index = static_cast<std::uint32_t>(&rank - group.ranks.data());
  outlets_.lanes.send_to_group(group, command::RankLeft{nullptr, index});
}

bool Groups::on_lane_removed(MemberGroup& group) {
  return ++group.lanes_removed == group.lane_count;
}

bool Groups::on_lane_released(const MemberGroup& group, MemberRank& rank) {
  if (++rank.released != group.lane_count) return false;
  rank.phase = MemberRank::Phase::left;
  if (rank.leave_request != 0) {
    outlets_.answers.done(rank.client, rank.leave_request, Errc::ok, "");
  }
  return true;
}

void Groups::tell_left(const MemberGroup& group, const MemberRank& rank) {
  if (group.has_ended()) return;
  outlets_.post.send(
      group.coordinator,
      {{"t", "left"}, {"uid", group.uid}, {"epoch", group.epoch}, {"rank", rank.rank}});
}

// ---- An epoch ends ------------------------------------------------------------------------------

void Groups::tell_end(LinkRef coordinator, const EpochEnd& end) {
  outlets_.post.send(coordinator, {{"t", "ended"},
                                   {"uid", end.uid},
                                   {"epoch", end.epoch},
                                   {"code", static_cast<int>(end.code)},
                                   {"text", end.text}});
}

void Groups::end(MemberGroup& group, Errc code, const std::string& text, bool tell_coordinator) {
  if (group.has_ended()) return;
  group.phase = MemberGroup::Phase::ended;
  group.end_code = code;
  group.end_text = text;
  ++outlets_.counters->groups_ended;
  if (code != Errc::group_left) {
    outlets_.log.write({LogTopic::groups, group.account, spdlog::level::warn, log_fields(group)},
                       "group {} epoch {} ended: {}: {}", short_uid(group.uid), group.epoch,
                       errc_name(code), text);
    flights_.group_failed(group);
  }
  if (tell_coordinator) tell_end(group.coordinator, {group.uid, group.epoch, code, text});
  outlets_.lanes.send_to_group(group, command::EndGroup{nullptr, code, Sentence(text)});
  for (MemberRank& rank : group.ranks) {
    if (rank.phase != MemberRank::Phase::joining) continue;
    rank.phase = MemberRank::Phase::left;  // its join has failed; it has no handle to leave with
    outlets_.answers.done(rank.client, rank.join_request, code, text);
  }
  remove_if_unused(group);
}

void Groups::end_all(Errc code, const std::string& text) {
  for (const auto& [number, group] : groups_) end(*group, code, text, true);
}

void Groups::lose_client(std::uint64_t client, const char* why) {
  std::vector<MemberGroup*> affected;
  for (const auto& [number, group] : groups_) {
    if (group->rank_of_client(client) != nullptr) affected.push_back(group.get());
  }
  for (MemberGroup* group : affected) {
    MemberRank& rank = *group->rank_of_client(client);
    end(*group, Errc::rank_lost,
        "lost rank " + std::to_string(rank.rank) + " on " + group->node_name(group->node) + ": " +
            why,
        true);
    rank.phase = MemberRank::Phase::left;
    remove_if_unused(*group);
  }
}

MemberGroup* Groups::led_by(LinkRef coordinator) const {
  for (const auto& [number, group] : groups_) {
    if (group->coordinator == coordinator && !group->has_ended()) return group.get();
  }
  return nullptr;
}

MemberGroup* Groups::late_to_start() const {
  const std::uint64_t now = outlets_.clock.now_ns();
  for (const auto& [number, group] : groups_) {
    if (group->phase == MemberGroup::Phase::starting && now >= group->start_deadline_ns)
      return group.get();
  }
  return nullptr;
}

int Groups::settle(const TimeSlice& slice) {
  int ended = 0;
  while (!lost_.empty()) {
    const LostLink& lost = lost_.front();
    MemberGroup* const group = led_by(lost.link);
    if (group == nullptr) {
      lost_.pop_front();
      continue;
    }
    end(*group, Errc::peer_lost,
        "lost the group's coordinator at " + group->id.host + ":" + std::to_string(group->id.port) +
            ": " + lost.why,
        false);
    ++ended;
    if (slice.is_over()) return ended;
  }
  while (MemberGroup* const group = late_to_start()) {
    end(*group, Errc::timeout, "the links between the nodes did not open in time", true);
    ++ended;
    if (slice.is_over()) break;
  }
  return ended;
}

void Groups::remove_if_unused(MemberGroup& group) {
  if (group.phase != MemberGroup::Phase::ended) return;
  for (const MemberRank& rank : group.ranks) {
    if (rank.phase != MemberRank::Phase::left) return;
  }
  group.phase = MemberGroup::Phase::removing;
  outlets_.lanes.send_to_group(group, command::RemoveGroup{});
}

void Groups::forget(MemberGroup& group) {
  for (const auto& lane : group.lanes) of_lane_.erase(lane.get());
  freeing_.take(group.account, free_lane_by_lane(std::move(group.lanes)), group.memory_bytes);
  groups_.erase(group.number);
}

}  // namespace tern::daemon
