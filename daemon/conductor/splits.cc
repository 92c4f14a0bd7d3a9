#include "daemon/conductor/splits.h"

#include <algorithm>
#include <string>

#include "daemon/membership/hmac.h"

namespace tern::daemon {

void Splits::begin(const Client& client, const shm::GroupSplitPacket& packet) {
  const std::uint64_t request = packet.header.request;
  MemberGroup* const parent = partners_.groups.by_number(packet.group);
  MemberRank* const rank = parent != nullptr ? parent->rank_of_client(client.id) : nullptr;
  if (rank == nullptr || rank->phase != MemberRank::Phase::joined) {
    return partners_.refusals.join({client, request}, Errc::unknown_group,
                                   "this client is not in the group that it splits");
  }
  const std::string group = short_group_uid(parent->id);
  if (parent->has_ended()) {
    return partners_.refusals.join({client, request, group}, parent->end_code, parent->end_text);
  }
  if (const std::string why = partners_.drain.join_refusal(client, parent->uid); !why.empty()) {
    return partners_.refusals.join({client, request, group}, Errc::shutting_down, why);
  }
  JoinRequest join;
  join.id = gathering_id(parent->id, {parent->epoch, parent->incarnation, rank->splits});
  join.uid = to_hex(join.id.uid);
  join.rank = rank->rank;
  join.packet.header = packet.header;
  join.packet.rank = static_cast<std::int32_t>(rank->rank);
  join.packet.size = static_cast<std::int32_t>(parent->size);
  join.packet.verify = packet.verify;
  join.packet.seed = packet.seed;
  join.packet.timeout_ms = packet.timeout_ms;
  join.packet.op_timeout_ms = packet.op_timeout_ms;
  join.split.emplace(
      JoinRequest::Split{{parent->uid, parent->epoch, rank->splits, packet.color, packet.key},
                         parent->coordinator,
                         parent->lineage + std::to_string(rank->splits) + ":"});
  const std::string problem = partners_.quotas.join_problem(client.credentials.uid, join.uid);
  if (!problem.empty()) return partners_.refusals.join_over_quota(client, request, problem);
  (void)partners_.joins.add(client, join);
}

bool Splits::on_message(LinkRef from, const nlohmann::json& message) {
  if (text_of(message, "t") != "divided") return false;
  count(from, message);
  const std::string uid = text_of(message, "uid");
  JoinSet* const set = partners_.joins.find(from, uid);
  const auto rank = static_cast<std::uint32_t>(number_of(message, "rank", -1));
  if (set == nullptr || !set->of_split || !set->waits(rank, text_of(message, "nonce"))) return true;
  const std::int64_t size = number_of(message, "size"), place = number_of(message, "place", -1);
  if (size < 1 || size > kMaxRanks || place < 0 || place >= size) {
    ++outlets_.counters->bad_control_messages;
    partners_.joins.refuse(*set, rank, Errc::protocol_error, "the coordinator divides strangely");
    partners_.joins.forget_empty();
    return true;
  }
  place_in_child(uid, rank, static_cast<std::uint32_t>(place));
  return true;
}

// Of its own colour: who says another one cannot prove the child that follows.
void Splits::place_in_child(const std::string& uid, std::uint32_t rank, std::uint32_t place) {
  const JoinSet& set = partners_.joins.all().at(uid);
  const std::int64_t color = set.ranks.at(rank).split->color;
  const ChildPlace child{child_id(set.id, color), place, set.lineage + std::to_string(color) + "/"};
  const LinkRef coordinator = set.coordinator;
  JoiningRank joining = partners_.joins.take(uid, rank);
  if (color < 0) {
    return outlets_.answers.send(joining.client,
                                 shm::make_packet<shm::GroupSplitReplyPacket>(
                                     shm::PacketKind::group_split_reply, joining.request));
  }
  // What gathered was one group; its children may be many.
  const std::string problem = partners_.quotas.join_problem(joining.user, to_hex(child.id.uid));
  if (!problem.empty()) {
    return partners_.refusals.join_over_quota(partners_.clients.at(joining.client), joining.request,
                                              problem);
  }
  partners_.joins.add_to_child(std::move(joining), coordinator, child);
}

// Also for a rank that does not wait any more: all ranks agree on how often the group was split.
void Splits::count(LinkRef from, const nlohmann::json& message) const {
  MemberGroup* const parent =
      partners_.groups.by_epoch(from, text_of(message, "parent"), number_of(message, "epoch"));
  if (parent == nullptr) return;
  for (MemberRank& rank : parent->ranks) {
    if (rank.rank != number_of(message, "rank", -1)) continue;
    const std::int64_t sequence = number_of(message, "sequence", -1);
    if (sequence == rank.splits) ++rank.splits;
  }
}

}  // namespace tern::daemon
