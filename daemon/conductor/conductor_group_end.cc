// How groups end for this node's ranks: failure, departure, removal.

#include <spdlog/spdlog.h>

#include <cstring>

#include "daemon/conductor/conductor.h"
#include "daemon/service/log.h"

namespace tern::daemon {

void Conductor::end_group(MemberGroup& group, Errc code, const std::string& text,
                          bool tell_coordinator) {
  if (group.ended) return;
  group.ended = true;
  group.end_code = code;
  group.end_text = text;
  ++counters_->groups_ended;
  if (code != Errc::group_left) {
    log_about(log_fields(group), spdlog::level::warn, "group {} epoch {} ended: {}: {}",
              short_uid(group.uid), group.epoch, errc_name(code), text);
    group.flights_due = true;
  }
  if (tell_coordinator) {
    end_epoch(group.coordinator, group.uid, group.epoch, code, text);
  }
  command_all(group, command::EndGroup{nullptr, code, Sentence(text)});
  for (MemberRank& rank : group.ranks) {
    if (rank.joined || rank.left) continue;
    rank.left = true;  // its join has failed; it has no handle to leave with
    answer(rank.client, rank.join_request, code, text);
  }
  remove_if_unused(group);
}

void Conductor::on_group_leave(Client& client, std::uint64_t request, std::uint64_t number) {
  MemberGroup* group = group_by_number(number);
  MemberRank* rank = group != nullptr ? rank_of_client(*group, client.id) : nullptr;
  if (rank == nullptr || rank->leaving) {
    return answer(client.id, request, Errc::unknown_group, "this client is not in that group");
  }
  leave(*group, *rank, request);
}

void Conductor::leave(MemberGroup& group, MemberRank& rank, std::uint64_t request) {
  rank.leaving = true;
  rank.leave_request = request;
  const auto index = static_cast<std::uint32_t>(&rank - group.ranks.data());
  command_all(group, command::RankLeft{nullptr, index});
}

// No op of the group uses the rank's memory any more, on any lane.
void Conductor::rank_released(MemberGroup& group, MemberRank& rank) {
  rank.left = true;
  if (rank.leave_request != 0) answer(rank.client, rank.leave_request, Errc::ok, "");
  const auto index = static_cast<std::uint32_t>(&rank - group.ranks.data());
  std::vector<std::uint64_t> held;
  for (const auto& [id, tensor] : group.tensors) {
    if ((tensor.holders >> index & 1) != 0) held.push_back(id);
  }
  for (const auto id : held) {
    group.tensors.at(id).holders &= ~(std::uint64_t{1} << index);
    if (group.tensors.at(id).holders == 0) release_tensor(group, id);
  }
  if (!group.ended) {
    send(group.coordinator,
         {{"t", "left"}, {"uid", group.uid}, {"epoch", group.epoch}, {"rank", rank.rank}});
  }
  const auto client = clients_.find(rank.client);
  const bool in_another = std::any_of(groups_.begin(), groups_.end(), [&](const auto& one) {
    return rank_of_client(*one.second, rank.client) != nullptr;
  });
  if (client != clients_.end() && client->second->goodbye && !in_another) {
    drop_client(*client->second, "it disconnected");
  }
  remove_if_unused(group);
}

// When the epoch has ended and no rank of this node has a handle to it.
void Conductor::remove_if_unused(MemberGroup& group) {
  if (group.removing || !group.ended) return;
  for (const MemberRank& rank : group.ranks) {
    if (!rank.left) return;
  }
  group.removing = true;
  command_all(group, command::RemoveGroup{});
}

void Conductor::end_all(Errc code, const std::string& text) {
  for (auto& [uid, set] : joins_) {
    while (!set.ranks.empty()) refuse_join(set, set.ranks.begin()->first, code, text);
  }
  joins_.clear();
  for (auto& [number, group] : groups_) end_group(*group, code, text, true);
}

void Conductor::begin_stop() { stopping_ = true; }

// ---- Look-ups -----------------------------------------------------------------------------------

MemberGroup* Conductor::group_by_number(std::uint64_t number) {
  const auto found = groups_.find(number);
  return found == groups_.end() ? nullptr : found->second.get();
}

MemberGroup* Conductor::group_by_epoch(const std::string& uid, std::int64_t epoch) {
  for (auto& [number, group] : groups_) {
    if (group->uid == uid && group->epoch == epoch) return group.get();
  }
  return nullptr;
}

MemberRank* Conductor::rank_of_client(MemberGroup& group, std::uint64_t client) {
  for (MemberRank& rank : group.ranks) {
    if (rank.client == client && !rank.left) return &rank;
  }
  return nullptr;
}

std::string Conductor::node_name(const MemberGroup& group, std::uint32_t node) {
  return "node " + std::to_string(node) + " (" + group.addresses[node] + ", ranks " +
         join_numbers(group.ranks_of_node[node]) + ")";
}

}  // namespace tern::daemon
