// Groups, from the side of their members on this node.

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstring>

#include "daemon/conductor/conductor.h"
#include "daemon/control/foreign_json.h"
#include "daemon/membership/hmac.h"
#include "daemon/service/log.h"

namespace tern::daemon {
namespace {

// How long the links of a new epoch may take to open.
constexpr std::uint64_t kStartNs = 30'000'000'000;

std::string gone_text(const std::vector<std::uint32_t>& ranks) {
  return (ranks.size() == 1 ? "rank " : "ranks ") + join_numbers(ranks) +
         " went while the others joined; join again";
}

bool can_work_with(const MemberList& list, const ConductorSettings& settings, std::size_t lanes) {
  return list.lanes <= lanes && list.chunk_bytes >= (16 << 10) &&
         list.chunk_bytes <= settings.chunk_bytes && list.eager_bytes <= settings.eager_bytes &&
         list.max_ops <= settings.max_ops_in_flight;
}

// The same for all groups of one user's job, on this node.
std::uint64_t job_number(const std::string& job, std::uint32_t user) {
  return std::hash<std::string>{}(std::to_string(user) + '/' + job);
}

}  // namespace

void Conductor::on_group_mint(Client& client, std::uint64_t request) {
  auto id = mint_group_id(settings_.advertise.host, settings_.advertise.port);
  if (!id) return answer(client.id, request, id.error().code, id.error().text);
  coordinator_.learn(*id);
  auto packet = shm::make_packet<shm::GroupMintedPacket>(shm::PacketKind::group_minted, request);
  const std::string text = format_group_id(*id);
  std::memcpy(packet.id, text.c_str(), text.size() + 1);
  answer_packet(client.id, packet);
}

void Conductor::expire_starts() {
  const std::uint64_t now = clock_.now_ns();
  for (auto& [number, group] : groups_) {
    if (!group->started && !group->ended && now >= group->start_deadline_ns) {
      end_group(*group, Errc::timeout, "the links between the nodes did not open in time", true);
    }
  }
}

// ---- Messages of the coordinator ----------------------------------------------------------------

bool Conductor::on_member_message(LinkRef from, const nlohmann::json& message) {
  const std::string type = text_of(message, "t");
  const std::string uid = text_of(message, "uid");
  if (type == "start" || type == "end") {
    MemberGroup* group = group_by_epoch(uid, number_of(message, "epoch"));
    if (group == nullptr || group->coordinator != from) return true;
    if (type == "start") {
      start_group(*group);
    } else {
      end_group(*group, errc_of(message, "code"), text_of(message, "text"), false);
      remove_if_unused(*group);
    }
    return true;
  }
  if (type == "challenge" || type == "refused" || type == "withdrawn") {
    on_join_answer(from, type, message);
    return true;
  }
  if (type == "members") {
    on_members(from, uid, message);
    return true;
  }
  if (type != "waiting") return false;
  const auto found = joins_.find(uid);
  if (found == joins_.end() || found->second.coordinator != from) return true;
  auto& missing = found->second.missing.emplace();
  const auto said = message.find("missing");
  if (said == message.end() || !said->is_array()) return true;
  for (const auto& one : *said) {
    if (!one.is_number_unsigned() || one.get<std::uint64_t>() >= kMaxRanks) continue;
    if (missing.size() < kMaxRanks) missing.push_back(one.get<std::uint32_t>());
  }
  return true;
}

void Conductor::end_epoch(LinkRef coordinator, const std::string& uid, std::int64_t epoch,
                          Errc code, const std::string& text) {
  send(coordinator, {{"t", "ended"},
                     {"uid", uid},
                     {"epoch", epoch},
                     {"code", static_cast<int>(code)},
                     {"text", text}});
}

void Conductor::refuse_epoch(JoinSet& set, std::int64_t epoch, Errc code, const std::string& why) {
  const std::string uid = to_hex(set.id.uid);
  const std::string text = "the node " + net::to_text(settings_.advertise) + ": " + why;
  log_about({.group = short_uid(uid)}, spdlog::level::warn, "group {}: no part in epoch {}: {}",
            short_uid(uid), epoch, text);
  end_epoch(set.coordinator, uid, epoch, code, text);
  while (!set.ranks.empty()) refuse_join(set, set.ranks.begin()->first, code, text);
}

void Conductor::on_members(LinkRef from, const std::string& uid, const nlohmann::json& message) {
  const std::string text = text_of(message, "body");
  const auto body =
      is_too_deep(text) ? nlohmann::json() : nlohmann::json::parse(text, nullptr, false);
  const auto list = parse_member_list(body);
  const MemberList::Node* const own = list ? list->find(self_) : nullptr;
  const auto found = joins_.find(uid);
  JoinSet* const set =
      found != joins_.end() && found->second.coordinator == from ? &found->second : nullptr;
  std::vector<std::uint32_t> here, gone;
  for (std::size_t i = 0; own != nullptr && i < own->ranks.size(); ++i) {
    const bool waits = set != nullptr && set->waits(own->ranks[i], own->nonces[i]);
    (waits ? here : gone).push_back(own->ranks[i]);
  }
  // Whoever joins now is not meant, and the other nodes must not wait.
  if (own != nullptr && here.empty()) {
    return end_epoch(from, uid, list->epoch, Errc::rank_lost, gone_text(gone));
  }
  if (set == nullptr) return;  // it names no join of this node, or cannot be read
  const std::int64_t epoch = body.is_object() ? number_of(body, "epoch") : 0;
  // The coordinator proves that it knows the secret too.
  if (!equal_constant_time(bytes_of(members_proof(set->id.secret, text)),
                           bytes_of(text_of(message, "hmac")))) {
    ++counters_->bad_control_messages;
    refuse_epoch(*set, epoch, Errc::rank_lost, "the coordinator's list of members is not proven");
  } else if (!list) {
    ++counters_->bad_control_messages;
    refuse_epoch(*set, epoch, list.error().code, list.error().text);
  } else if (own == nullptr || !can_work_with(*list, settings_, lanes_.size())) {
    ++counters_->bad_control_messages;
    refuse_epoch(*set, epoch, Errc::protocol_error,
                 "it cannot take part with what the coordinator's list of members says");
  } else if (!gone.empty()) {
    // Some went in the meantime. Those that have joined anew wait for the next epoch.
    end_epoch(from, uid, epoch, Errc::rank_lost, gone_text(gone));
    for (const auto rank : here) refuse_join(*set, rank, Errc::rank_lost, gone_text(gone));
  } else if (admit_epoch(*set, *list)) {
    make_group(*set, *list);
  }
  std::erase_if(joins_, [](const auto& one) { return one.second.ranks.empty(); });
}

void Conductor::make_group(JoinSet& set, const MemberList& list) {
  auto made = std::make_unique<MemberGroup>();
  MemberGroup& group = *made;
  group.number = next_group_++;
  group.id = set.id;
  group.uid = to_hex(set.id.uid);
  group.coordinator = set.coordinator;
  group.epoch = list.epoch;
  group.size = list.size;
  group.last_common_op = list.last_common_op;
  group.start_deadline_ns = clock_.now_ns() + kStartNs;

  GroupSetup setup;
  setup.number = group.number;
  setup.epoch = group.epoch;
  setup.size = group.size;
  setup.token = group_token(set.id.secret, group.uid, group.epoch, list.incarnation);
  setup.link = link_number(set.id);
  setup.op_timeout_ns = ns_of_ms(list.op_timeout_ms);
  setup.seed = list.seed;
  setup.lossy_min_bytes = list.lossy_min_bytes;
  setup.shape.lanes = list.lanes;
  setup.shape.chunk_bytes = list.chunk_bytes;
  setup.shape.eager_bytes =
      collective::eager_limit(list.eager_bytes, static_cast<std::uint32_t>(list.nodes.size()));
  setup.shape.max_ops_in_flight = list.max_ops;
  setup.shape.active_chunks = settings_.active_chunks;
  setup.shape.verify = list.verify;
  setup.shape.node = static_cast<std::uint32_t>(list.find(self_) - list.nodes.data());
  for (const MemberList::Node& one : list.nodes) {
    setup.node_ids.push_back(one.id);
    setup.endpoints.push_back(one.endpoint);
    setup.shape.ranks.push_back(one.ranks);
    group.addresses.push_back(net::to_text(one.endpoint));
  }
  group.node = setup.shape.node;
  group.lane_count = setup.shape.lanes;
  group.chunk_bytes = setup.shape.chunk_bytes;
  group.eager_bytes = setup.shape.eager_bytes;
  group.max_ops = setup.shape.max_ops_in_flight;
  group.lossy_min_bytes = setup.lossy_min_bytes;
  group.ranks_of_node = setup.shape.ranks;
  for (const auto rank : setup.shape.ranks[group.node]) {
    const JoiningRank joining = set.ranks.extract(rank).mapped();
    MemberRank member;
    member.rank = rank;
    member.client = joining.client;
    member.join_request = joining.request;
    group.ranks.push_back(member);
    setup.local_clients.push_back(joining.client);
  }
  group.users = users_of(group, clients_);
  const Client& first = *clients_.at(group.ranks.front().client);
  group.job = first.job;
  group.uid_of_user = first.credentials.uid;
  setup.job = job_number(group.job, group.uid_of_user);
  setup.weight = tuning_ != nullptr ? tuning_->policy().weight(group.job) : 1;
  for (std::uint32_t lane = 0; lane < group.lane_count; ++lane) {
    setup.shape.lane = lane;
    group.lanes.push_back(std::make_unique<LaneGroup>(setup));
    group_of_lane_group_[group.lanes.back().get()] = &group;
  }
  log_about(log_fields(group), spdlog::level::info,
            "group {} epoch {}: {} ranks on {} nodes, {} of them here, {} lanes",
            short_uid(group.uid), group.epoch, group.size, group.addresses.size(),
            group.ranks.size(), group.lane_count);
  command_all(group, command::AddGroup{});
  groups_[group.number] = std::move(made);
}

// After the operator has changed the policy.
void Conductor::weigh_jobs() {
  if (weighed_by_ == tuning_->policy_version()) return;
  weighed_by_ = tuning_->policy_version();
  for (const auto& [number, group] : groups_) {
    const std::uint32_t weight = tuning_->policy().weight(group->job);
    if (!group->removing) command_all(*group, command::SetWeight{nullptr, weight});
  }
}

void Conductor::start_group(MemberGroup& group) {
  if (group.started || group.ended) return;
  group.started = true;
  for (MemberRank& rank : group.ranks) {
    if (rank.left) continue;
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
    rank.joined = true;
    answer_packet(rank.client, packet);
  }
}

}  // namespace tern::daemon
