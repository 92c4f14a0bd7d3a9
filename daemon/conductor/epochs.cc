#include "daemon/conductor/epochs.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "daemon/control/foreign_json.h"
#include "daemon/lane/eager_room.h"
#include "daemon/lane/group_bytes.h"
#include "daemon/membership/group_proofs.h"
#include "daemon/membership/hmac.h"

namespace tern::daemon {
namespace {

// How long the links of a new epoch may take to open.
constexpr std::uint64_t kStartNs = 30'000'000'000;

std::string gone_text(const std::vector<std::uint32_t>& ranks) {
  return (ranks.size() == 1 ? "rank " : "ranks ") + join_numbers(ranks) +
         " went while the others joined; join again";
}

// The same for all groups of one user's job, on this node.
std::uint64_t job_number(const std::string& job, std::uint32_t user) {
  return std::hash<std::string>{}(std::to_string(user) + '/' + job);
}

// Of each lane.
Result<std::vector<EagerRoom>> rooms_of(const GroupSetup& setup) {
  std::vector<EagerRoom> rooms;
  for (std::uint32_t lane = 0; lane < setup.shape.lanes; ++lane) {
    auto room = EagerRoom::make(setup.shape);
    if (!room) return tl::unexpected(std::move(room.error()));
    rooms.push_back(std::move(*room));
  }
  return rooms;
}

// Each user once.
std::vector<std::uint32_t> users_of(const MemberGroup& group, const Clients& clients) {
  std::vector<std::uint32_t> users;
  for (const MemberRank& rank : group.ranks) {
    users.push_back(clients.at(rank.client).credentials.uid);
  }
  std::sort(users.begin(), users.end());
  users.erase(std::unique(users.begin(), users.end()), users.end());
  return users;
}

}  // namespace

bool Epochs::on_message(LinkRef from, const nlohmann::json& message) {
  const std::string type = text_of(message, "t");
  if (type == "members") {
    on_members(from, message);
    return true;
  }
  if (type != "start" && type != "end") return false;
  MemberGroup* const group =
      partners_.groups.by_epoch(from, text_of(message, "uid"), number_of(message, "epoch"));
  if (group == nullptr) return true;
  if (type == "start") {
    partners_.groups.start(*group);
  } else {
    partners_.groups.end(*group, errc_of(message, "code"), text_of(message, "text"), false);
  }
  return true;
}

Epochs::Roll Epochs::call_roll(LinkRef from, const std::string& uid, const MemberList* list) const {
  Roll roll;
  roll.own = list != nullptr ? list->find(outlets_.post.self()) : nullptr;
  roll.set = partners_.joins.find(from, uid);
  for (std::size_t i = 0; roll.own != nullptr && i < roll.own->ranks.size(); ++i) {
    const std::uint32_t rank = roll.own->ranks[i];
    const bool waits = roll.set != nullptr && roll.set->waits(rank, roll.own->nonces[i]);
    (waits ? roll.here : roll.gone).push_back(rank);
  }
  return roll;
}

bool Epochs::can_work_with(const MemberList& list) const {
  const OpSettings& ops = settings_.ops;
  return list.lanes <= outlets_.lanes.lane_count() && list.chunk_bytes >= (16 << 10) &&
         list.chunk_bytes <= ops.chunk_bytes && list.eager_bytes <= ops.eager_bytes &&
         list.max_ops <= ops.max_ops_in_flight && list.cut <= ops.cut &&
         list.eager_form <= ops.eager_form && list.rooted_form <= ops.rooted_form;
}

void Epochs::on_members(LinkRef from, const nlohmann::json& message) {
  const std::string uid = text_of(message, "uid");
  const std::string text = text_of(message, "body");
  const auto body = objection_to_json(text) != nullptr
                        ? nlohmann::json()
                        : nlohmann::json::parse(text, nullptr, false);
  const auto list = parse_member_list(body);
  const Roll roll = call_roll(from, uid, list ? &*list : nullptr);
  // Whoever joins now is not meant, and the other nodes must not wait.
  if (roll.own != nullptr && roll.here.empty()) {
    return partners_.groups.tell_end(from,
                                     {uid, list->epoch, Errc::rank_lost, gone_text(roll.gone)});
  }
  if (roll.set == nullptr) return;  // it names no join of this node, or cannot be read
  JoinSet& set = *roll.set;
  const std::int64_t epoch = body.is_object() ? number_of(body, "epoch") : 0;
  // The coordinator proves that it knows the secret too.
  if (!equal_constant_time(bytes_of(members_proof(set.id.secret, text)),
                           bytes_of(text_of(message, "hmac")))) {
    ++outlets_.counters->bad_control_messages;
    refuse(set, epoch, {Errc::rank_lost, "the coordinator's list of members is not proven"});
  } else if (!list) {
    ++outlets_.counters->bad_control_messages;
    refuse(set, epoch, list.error());
  } else if (roll.own == nullptr || !can_work_with(*list)) {
    ++outlets_.counters->bad_control_messages;
    refuse(set, epoch,
           {Errc::protocol_error,
            "it cannot take part with what the coordinator's list of members says"});
  } else if (!roll.gone.empty()) {
    // Some went in the meantime. Those that have joined anew wait for the next epoch.
    const std::string gone = gone_text(roll.gone);
    partners_.groups.tell_end(from, {uid, epoch, Errc::rank_lost, gone});
    for (const auto rank : roll.here) partners_.joins.refuse(set, rank, Errc::rank_lost, gone);
  } else if (GroupSetup setup = setup_of(set, *list); admit(set, *list, memory_of(setup))) {
    begin(set, *list, std::move(setup));
  }
  partners_.joins.forget_empty();
}

void Epochs::refuse(JoinSet& set, std::int64_t epoch, const Error& why) {
  const std::string uid = to_hex(set.id.uid);
  const std::string text = "the node " + net::to_text(settings_.advertise) + ": " + why.text;
  if (!set.ranks.empty()) {
    const std::uint32_t account = settings_.sub_users.owner_of(set.ranks.begin()->second.user);
    outlets_.log.write({LogTopic::groups, account, spdlog::level::warn, {.group = short_uid(uid)}},
                       "group {}: no part in epoch {}: {}", short_uid(uid), epoch, text);
  }
  partners_.groups.tell_end(set.coordinator, {uid, epoch, why.code, text});
  partners_.joins.refuse_all(set, why.code, text);
}

bool Epochs::admit(JoinSet& set, const MemberList& list, std::uint64_t memory_bytes) {
  std::string problem = partners_.quotas.link_problem(set, list);
  if (problem.empty()) problem = partners_.quotas.group_problem(set, memory_bytes);
  if (problem.empty()) return true;
  ++outlets_.counters->quota_refusals;
  refuse(set, list.epoch, {Errc::quota_exceeded, problem});
  return false;
}

std::uint64_t Epochs::memory_of(const GroupSetup& setup) {
  return setup.shape.lanes * (group_bytes(setup.shape) + EagerRoom::bytes_for(setup.shape));
}

// ---- An epoch begins ----------------------------------------------------------------------------

GroupSetup Epochs::setup_of(const JoinSet& set, const MemberList& list) const {
  GroupSetup setup;
  setup.epoch = list.epoch;
  setup.size = list.size;
  setup.token = group_token(set.id.secret, to_hex(set.id.uid), list.epoch, list.incarnation);
  setup.link = link_number(set.id);
  setup.op_timeout_ns = ns_of_ms(list.op_timeout_ms);
  setup.seed = list.seed;
  setup.lossy_min_bytes = list.lossy_min_bytes;
  setup.shape.lanes = list.lanes;
  setup.shape.chunk_bytes = list.chunk_bytes;
  setup.shape.cut = static_cast<shm::CutVersion>(list.cut);
  setup.shape.eager_form = static_cast<collective::EagerForm>(list.eager_form);
  setup.shape.rooted_form = static_cast<collective::RootedForm>(list.rooted_form);
  setup.shape.eager_bytes =
      collective::eager_limit(list.eager_bytes, static_cast<std::uint32_t>(list.nodes.size()));
  setup.shape.max_ops_in_flight = list.max_ops;
  setup.shape.active_chunks = settings_.active_chunks;
  setup.shape.verify = list.verify;
  setup.shape.node =
      static_cast<std::uint32_t>(list.find(outlets_.post.self()) - list.nodes.data());
  for (const MemberList::Node& one : list.nodes) {
    setup.node_ids.push_back(one.id);
    setup.endpoints.push_back(one.endpoint);
    setup.shape.ranks.push_back(one.ranks);
  }
  return setup;
}

void Epochs::add_ranks(MemberGroup& group, JoinSet& set, GroupSetup& setup) const {
  for (const auto rank : setup.shape.ranks[group.node]) {
    const JoiningRank joining = set.ranks.extract(rank).mapped();
    MemberRank member;
    member.rank = rank;
    member.client = joining.client;
    member.join_request = joining.request;
    group.ranks.push_back(member);
    setup.local_clients.push_back(joining.client);
  }
  group.users = users_of(group, partners_.clients);
  const Client& first = partners_.clients.at(group.ranks.front().client);
  group.job = first.job;
  group.uid_of_user = first.credentials.uid;
  group.account = settings_.sub_users.owner_of(group.uid_of_user);
  for (net::Endpoint& endpoint : setup.endpoints) endpoint.user = group.account;
  setup.account = group.account;
  setup.job = job_number(group.job, group.uid_of_user);
  setup.weight = partners_.tuning != nullptr
                     ? partners_.tuning->policy().weight(group.job, group.uid_of_user)
                     : 1;
}

void Epochs::begin(JoinSet& set, const MemberList& list, GroupSetup setup) {
  // Others may have taken what the kernel maps for this process.
  auto rooms = rooms_of(setup);
  if (!rooms) return refuse(set, list.epoch, rooms.error());
  setup.number = partners_.groups.next_number();
  auto group = std::make_unique<MemberGroup>();
  group->number = setup.number;
  group->id = set.id;
  group->lineage = set.lineage;
  group->uid = to_hex(set.id.uid);
  group->coordinator = set.coordinator;
  group->epoch = list.epoch;
  group->incarnation = list.incarnation;
  group->size = list.size;
  group->last_common_op = list.last_common_op;
  group->start_deadline_ns = outlets_.clock.now_ns() + kStartNs;
  group->node = setup.shape.node;
  group->lane_count = setup.shape.lanes;
  group->chunk_bytes = setup.shape.chunk_bytes;
  group->cut = setup.shape.cut;
  group->eager_form = setup.shape.eager_form;
  group->eager_bytes = setup.shape.eager_bytes;
  group->max_ops = setup.shape.max_ops_in_flight;
  group->lossy_min_bytes = setup.lossy_min_bytes;
  group->memory_bytes = memory_of(setup);
  group->seed = setup.seed;
  group->ranks_of_node = setup.shape.ranks;
  for (const net::Endpoint& endpoint : setup.endpoints) {
    group->addresses.push_back(net::to_text(endpoint));
  }
  add_ranks(*group, set, setup);
  for (std::uint32_t lane = 0; lane < group->lane_count; ++lane) {
    setup.shape.lane = lane;
    group->lanes.push_back(std::make_unique<LaneGroup>(setup, std::move((*rooms)[lane])));
  }
  partners_.groups.add(std::move(group));
}

}  // namespace tern::daemon
