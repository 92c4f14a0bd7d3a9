// Groups, from the side of their members on this node.

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "daemon/conductor.h"
#include "daemon/hmac.h"
#include "daemon/service/log.h"

namespace tern::daemon {
namespace {

constexpr std::uint64_t kDefaultJoinNs = 60'000'000'000;
// How long the links of a new epoch may take to open.
constexpr std::uint64_t kStartNs = 30'000'000'000;
constexpr std::uint64_t kMs = 1'000'000;

// "host:port" or "[v6]:port", as the members sent it.
bool parse_address(const std::string& text, net::Endpoint& endpoint) {
  const auto colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0 || text.size() > 300) return false;
  endpoint.host = text.substr(0, colon);
  if (endpoint.host.front() == '[' && endpoint.host.back() == ']') {
    endpoint.host = endpoint.host.substr(1, endpoint.host.size() - 2);
  }
  int port = 0;
  if (std::sscanf(text.c_str() + colon + 1, "%5d", &port) != 1 || port < 1 || port > 65535)
    return false;
  endpoint.port = static_cast<std::uint16_t>(port);
  return true;
}

std::string gone_text(const std::vector<std::uint32_t>& ranks) {
  return (ranks.size() == 1 ? "rank " : "ranks ") + join_numbers(ranks) +
         " went while the others joined; join again";
}

constexpr const char* kNotProven = "the coordinator's list of members is not proven";

// The ranks that a list of members, not proven yet, places on a node.
std::vector<std::uint32_t> ranks_on(const std::string& node, const nlohmann::json& body) {
  std::vector<std::uint32_t> numbers;
  const auto nodes = body.find("nodes");
  if (nodes == body.end() || !nodes->is_array()) return numbers;
  for (const auto& one : *nodes) {
    if (!one.is_object() || text_of(one, "id") != node) continue;
    const auto ranks = one.find("ranks");
    if (ranks == one.end() || !ranks->is_array()) continue;
    for (const auto& rank : *ranks) {
      if (rank.is_number_unsigned() && numbers.size() < collective::kMaxLocalRanks) {
        numbers.push_back(rank.get<std::uint32_t>());
      }
    }
  }
  return numbers;
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

void Conductor::on_group_join(Client& client, const shm::GroupJoinPacket& packet) {
  const std::uint64_t request = packet.header.request;
  if (stopping_) return answer(client.id, request, Errc::shutting_down, "the daemon is stopping");
  std::string group;  // what is known of it so far
  const auto refuse = [&](Errc code, const std::string& text) {
    refuse_join({client, request, group}, code, text);
  };
  if (std::memchr(packet.id, '\0', sizeof(packet.id)) == nullptr) {
    return refuse(Errc::invalid_argument, "the group id's text does not end");
  }
  const auto id = parse_group_id(packet.id);
  if (!id) return refuse(id.error().code, id.error().text);
  group = short_group_uid(*id);
  if (packet.size < 1 || packet.size > 1024 || packet.rank < 0 || packet.rank >= packet.size) {
    return refuse(Errc::invalid_argument, "rank must be 0 .. size-1 and size 1 .. 1024");
  }
  const std::string uid = to_hex(id->uid);
  if (const std::string problem = join_problem(client.credentials.uid, uid); !problem.empty()) {
    ++counters_->joins_refused;
    return refuse_quota(client, request, problem);
  }
  const auto rank = static_cast<std::uint32_t>(packet.rank);
  const bool here = id->host == settings_.advertise.host && id->port == settings_.advertise.port;
  const auto known = joins_.find(uid);
  if (known != joins_.end()) {
    // The first join of this node fixed the id; another secret for the same uid cannot be right.
    if (known->second.id != *id) {
      return refuse(Errc::bad_secret, "the group id's secret is wrong");
    }
    for (const auto& [other, joining] : known->second.ranks) {
      if (joining.client != client.id) continue;
      return refuse(Errc::invalid_argument,
                    "this process is joining already, as rank " + std::to_string(other));
    }
    if (known->second.ranks.contains(rank)) {
      return refuse(Errc::rank_taken, "rank " + std::to_string(rank) +
                                          " has been taken by another process of this node");
    }
  }
  if (here) coordinator_.learn(*id);
  JoinSet& set = joins_[uid];
  set.id = *id;
  set.coordinator = here ? kSelf : links_.open({id->host, id->port});
  JoiningRank& joining = set.ranks[rank];
  joining.client = client.id;
  joining.user = client.credentials.uid;
  joining.request = request;
  joining.rank = rank;
  std::array<std::byte, 16> nonce;
  random_bytes(nonce);
  joining.nonce = to_hex(nonce);
  std::uint64_t timeout =
      packet.timeout_ms > 0 ? static_cast<std::uint64_t>(packet.timeout_ms) * kMs : kDefaultJoinNs;
  timeout = std::min(timeout, settings_.join_timeout_max_ns);
  joining.deadline_ns = clock_.now_ns() + timeout;
  joining.message = {
      {"t", "join"},
      {"uid", uid},
      {"rank", rank},
      {"size", packet.size},
      {"nonce", joining.nonce},
      {"node", node_text(self_)},
      {"address", net::to_text(settings_.advertise)},
      {"lanes", lanes_.size()},
      {"chunk_bytes", settings_.chunk_bytes},
      {"eager_bytes", settings_.eager_bytes},
      {"max_ops", settings_.max_ops_in_flight},
      {"lossy_min", settings_.lossy_min_bytes},
      {"op_timeout_ms", packet.op_timeout_ms > 0
                            ? packet.op_timeout_ms
                            : static_cast<std::int64_t>(settings_.op_timeout_ns / kMs)},
      {"verify", packet.verify != 0 || settings_.verify},
      {"seed", static_cast<std::int64_t>(packet.seed)},
      {"completed", static_cast<std::int64_t>(packet.completed_ops)}};
  ++counters_->joins;
  send(set.coordinator, joining.message);
}

// A link that has worked may be to a daemon that was restarted since: what was asked on it is asked
// again on a new one. That one has not worked yet, so that this happens once.
void Conductor::ask_again(JoinSet& set) {
  set.coordinator = links_.open({set.id.host, set.id.port});
  set.missing.clear();
  for (auto& [rank, joining] : set.ranks) {
    joining.challenged = false;
    send(set.coordinator, joining.message);
  }
}

void Conductor::refuse_join(JoinSet& set, std::uint32_t rank, Errc code, const std::string& text) {
  const auto found = set.ranks.find(rank);
  if (found == set.ranks.end()) return;
  const Client& client = *clients_.at(found->second.client);  // which takes its joins with it
  refuse_join({client, found->second.request, short_group_uid(set.id)}, code, text);
  set.ranks.erase(found);
  join_failed_ = true;
}

void Conductor::expire_joins() {
  const std::uint64_t now = clock_.now_ns();
  for (auto& [uid, set] : joins_) {
    std::vector<std::uint32_t> late;
    for (const auto& [rank, joining] : set.ranks) {
      if (now >= joining.deadline_ns) late.push_back(rank);
    }
    for (const auto rank : late) {
      send(set.coordinator, {{"t", "withdraw"}, {"uid", uid}, {"rank", rank}});
      const bool challenged = set.ranks[rank].challenged;
      const std::string where = set.id.host + ":" + std::to_string(set.id.port);
      std::string text = "the coordinator at " + where + " did not answer";
      Errc code = Errc::timeout;
      if (challenged) {
        text = "waited for rank " + join_numbers(set.missing);
      } else if (set.coordinator == kSelf || links_.is_open(set.coordinator)) {
        code = Errc::unknown_group;
        text =
            "the daemon at " + where + " does not know the group; was it restarted? mint a new id";
      } else {
        code = Errc::unreachable;
        text = "the group's coordinator at " + where + " cannot be reached";
      }
      refuse_join(set, rank, code, text);
    }
  }
  std::erase_if(joins_, [](const auto& one) { return one.second.ranks.empty(); });
  for (auto& [number, group] : groups_) {
    if (!group->started && !group->ended && now >= group->start_deadline_ns) {
      end_group(*group, Errc::timeout, "the links between the nodes did not open in time", true);
    }
  }
}

// ---- Messages of the coordinator
// ------------------------------------------------------------------

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
  if (type != "challenge" && type != "refused" && type != "waiting" && type != "members")
    return false;
  const auto found = joins_.find(uid);
  if (found == joins_.end() || found->second.coordinator != from) {
    if (type == "members") refuse_epoch(from, uid, message, {});
    return true;
  }
  JoinSet& set = found->second;
  const auto rank = static_cast<std::uint32_t>(number_of(message, "rank", -1));
  if (type == "challenge") {
    const auto joining = set.ranks.find(rank);
    if (joining == set.ranks.end()) return true;
    joining->second.challenged = true;
    const std::string proof =
        join_proof(set.id.secret, uid, joining->second.nonce, text_of(message, "nonce"),
                   node_text(self_), rank, number_of(joining->second.message, "size"));
    send(from, {{"t", "proof"}, {"uid", uid}, {"rank", rank}, {"hmac", proof}});
  } else if (type == "refused") {
    refuse_join(set, rank, errc_of(message, "code"), text_of(message, "text"));
    if (set.ranks.empty()) joins_.erase(found);
  } else if (type == "waiting") {
    set.missing.clear();
    const auto missing = message.find("missing");
    if (missing == message.end() || !missing->is_array()) return true;
    for (const auto& one : *missing) {
      if (one.is_number_unsigned()) set.missing.push_back(one.get<std::uint32_t>());
    }
  } else {
    on_members(from, uid, message);
  }
  return true;
}

// Ranks that the list names are not here any more, but for those of `waiting`: they went while the
// epoch began. The others must not wait for this node.
std::string Conductor::refuse_epoch(LinkRef from, const std::string& uid,
                                    const nlohmann::json& message, const JoinSet& waiting) {
  const auto body = nlohmann::json::parse(text_of(message, "body"), nullptr, false);
  if (!body.is_object()) return kNotProven;
  std::vector<std::uint32_t> gone = ranks_on(node_text(self_), body);
  std::erase_if(gone, [&](std::uint32_t rank) { return waiting.ranks.contains(rank); });
  std::string text = gone.empty() ? kNotProven : gone_text(gone);
  send(from, {{"t", "ended"},
              {"uid", uid},
              {"epoch", number_of(body, "epoch")},
              {"code", static_cast<int>(Errc::rank_lost)},
              {"text", text}});
  return text;
}

void Conductor::on_members(LinkRef from, const std::string& uid, const nlohmann::json& message) {
  JoinSet& set = joins_[uid];
  const std::string text = text_of(message, "body");
  // The coordinator proves that it knows the secret too, for the nonce of this node's lowest rank.
  const std::string proof =
      set.ranks.empty() ? "" : members_proof(set.id.secret, set.ranks.begin()->second.nonce, text);
  const auto body = nlohmann::json::parse(text, nullptr, false);
  if (proof.empty() || !equal_constant_time(bytes_of(proof), bytes_of(text_of(message, "hmac"))) ||
      !body.is_object()) {
    ++counters_->bad_control_messages;
    log_about({.group = short_uid(uid)}, spdlog::level::warn, "group {}: {}", short_uid(uid),
              kNotProven);
    // The proof is for the nonce of the lowest rank, which may be the one that went.
    const std::string why = refuse_epoch(from, uid, message, set);
    while (!set.ranks.empty()) refuse_join(set, set.ranks.begin()->first, Errc::rank_lost, why);
    joins_.erase(uid);
    return;
  }
  if (admit_epoch(set, body)) make_group(set, body);
  std::erase_if(joins_, [](const auto& one) { return one.second.ranks.empty(); });
}

void Conductor::make_group(JoinSet& set, const nlohmann::json& body) {
  auto made = std::make_unique<MemberGroup>();
  MemberGroup& group = *made;
  group.number = next_group_++;
  group.id = set.id;
  group.uid = to_hex(set.id.uid);
  group.coordinator = set.coordinator;
  group.epoch = static_cast<std::uint32_t>(number_of(body, "epoch"));
  group.size = static_cast<std::uint32_t>(number_of(body, "size"));
  group.last_common_op = static_cast<std::uint64_t>(number_of(body, "last_common_op"));
  group.start_deadline_ns = clock_.now_ns() + kStartNs;

  GroupSetup setup;
  setup.number = group.number;
  setup.epoch = group.epoch;
  setup.size = group.size;
  setup.token = group_token(set.id.secret, group.uid, group.epoch, text_of(body, "incarnation"));
  setup.link = link_number(set.id);
  setup.op_timeout_ns = static_cast<std::uint64_t>(number_of(body, "op_timeout_ms")) * kMs;
  setup.seed = static_cast<std::uint64_t>(number_of(body, "seed"));
  setup.lossy_min_bytes = static_cast<std::uint64_t>(number_of(body, "lossy_min"));
  setup.shape.lanes = static_cast<std::uint32_t>(number_of(body, "lanes", 1));
  setup.shape.chunk_bytes = static_cast<std::uint64_t>(number_of(body, "chunk_bytes"));
  setup.shape.eager_bytes = static_cast<std::uint64_t>(number_of(body, "eager_bytes"));
  setup.shape.max_ops_in_flight = static_cast<std::uint32_t>(number_of(body, "max_ops"));
  setup.shape.active_chunks = settings_.active_chunks;
  setup.shape.verify = flag_of(body, "verify");
  bool sound =
      setup.shape.lanes >= 1 && setup.shape.lanes <= lanes_.size() &&
      setup.shape.chunk_bytes >= (16 << 10) && setup.shape.chunk_bytes <= settings_.chunk_bytes &&
      setup.shape.eager_bytes <= settings_.eager_bytes && setup.shape.max_ops_in_flight >= 1 &&
      setup.shape.max_ops_in_flight <= settings_.max_ops_in_flight;
  const auto nodes = body.find("nodes");
  sound = sound && nodes != body.end() && nodes->is_array() && !nodes->empty() &&
          nodes->size() <= collective::kMaxNodes;
  if (sound) {
    setup.shape.eager_bytes =
        collective::eager_limit(setup.shape.eager_bytes, static_cast<std::uint32_t>(nodes->size()));
  }
  setup.shape.node = collective::kNobody;
  for (std::size_t i = 0; sound && i < nodes->size(); ++i) {
    const auto& node = (*nodes)[i];
    const auto id = node.is_object() ? parse_node(text_of(node, "id")) : std::nullopt;
    net::Endpoint endpoint;
    const auto ranks = id ? node.find("ranks") : node.end();
    if (!id || !parse_address(text_of(node, "address"), endpoint) || ranks == node.end() ||
        !ranks->is_array()) {
      sound = false;
      break;
    }
    std::vector<std::uint32_t> numbers;
    for (const auto& rank : *ranks) {
      if (rank.is_number_unsigned() && rank.get<std::uint64_t>() < group.size) {
        numbers.push_back(rank.get<std::uint32_t>());
      }
    }
    sound = !numbers.empty() && numbers.size() <= collective::kMaxLocalRanks;
    if (*id == self_) setup.shape.node = static_cast<std::uint32_t>(i);
    setup.node_ids.push_back(*id);
    setup.endpoints.push_back(endpoint);
    setup.shape.ranks.push_back(numbers);
    group.addresses.push_back(text_of(node, "address"));
  }
  sound = sound && setup.shape.node != collective::kNobody;
  std::vector<std::uint32_t> gone;
  for (std::size_t i = 0; sound && i < setup.shape.ranks[setup.shape.node].size(); ++i) {
    const std::uint32_t rank = setup.shape.ranks[setup.shape.node][i];
    if (!set.ranks.contains(rank)) gone.push_back(rank);
  }
  if (!sound || !gone.empty()) {
    const Errc code = sound ? Errc::rank_lost : Errc::protocol_error;
    const std::string text =
        sound ? gone_text(gone) : "a node cannot take part with these parameters";
    log_about(log_fields(group), spdlog::level::warn,
              "group {}: the coordinator's list of members does not fit this node: {}",
              short_uid(group.uid), text);
    send(group.coordinator, {{"t", "ended"},
                             {"uid", group.uid},
                             {"epoch", group.epoch},
                             {"code", static_cast<int>(code)},
                             {"text", text}});
    while (!set.ranks.empty()) refuse_join(set, set.ranks.begin()->first, code, text);
    return;
  }
  group.node = setup.shape.node;
  group.lane_count = setup.shape.lanes;
  group.chunk_bytes = setup.shape.chunk_bytes;
  group.eager_bytes = setup.shape.eager_bytes;
  group.max_ops = setup.shape.max_ops_in_flight;
  group.lossy_min_bytes = setup.lossy_min_bytes;
  group.ranks_of_node = setup.shape.ranks;
  for (const auto rank : setup.shape.ranks[group.node]) {
    const JoiningRank& joining = set.ranks[rank];
    MemberRank member;
    member.rank = rank;
    member.client = joining.client;
    member.join_request = joining.request;
    group.ranks.push_back(member);
    setup.local_clients.push_back(joining.client);
    set.ranks.erase(rank);
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
  Command add;
  add.kind = CommandKind::add_group;
  command_all(group, add);
  groups_[group.number] = std::move(made);
}

// After the operator has changed the policy.
void Conductor::weigh_jobs() {
  if (weighed_by_ == tuning_->policy_version()) return;
  weighed_by_ = tuning_->policy_version();
  for (const auto& [number, group] : groups_) {
    Command weigh;
    weigh.kind = CommandKind::set_weight;
    weigh.number = tuning_->policy().weight(group->job);
    if (!group->removing) command_all(*group, weigh);
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
