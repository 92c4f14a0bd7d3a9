#include "daemon/conductor/joins.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <utility>

#include "daemon/membership/group_proofs.h"
#include "daemon/membership/hmac.h"
#include "daemon/membership/member_group.h"
#include "daemon/membership/member_list.h"

namespace tern::daemon {
namespace {

constexpr std::uint64_t kDefaultJoinNs = 60'000'000'000;
constexpr std::uint64_t kLastWordNs = ns_of_ms(shm::kJoinLastWordMs);

std::string place_of(const GroupId& id) { return id.host + ":" + std::to_string(id.port); }

}  // namespace

JoinSet* Joins::find(LinkRef coordinator, const std::string& uid) {
  const auto found = joins_.find(uid);
  return found != joins_.end() && found->second.coordinator == coordinator ? &found->second
                                                                           : nullptr;
}

void Joins::add_links(std::set<LinkRef>& links) const {
  for (const auto& [uid, set] : joins_) links.insert(set.coordinator);
}

std::uint64_t Joins::next_deadline_ns() const {
  if (!lost_.empty()) return outlets_.clock.now_ns();
  std::uint64_t deadline = ~std::uint64_t{0};
  for (const auto& [uid, set] : joins_) {
    for (const auto& [rank, joining] : set.ranks) {
      deadline = std::min(deadline, joining.deadline_ns);
    }
  }
  return deadline;
}

void Joins::forget_empty() {
  std::erase_if(joins_, [](const auto& one) { return one.second.ranks.empty(); });
}

// ---- From clients -------------------------------------------------------------------------------

Status Joins::read(const shm::GroupJoinPacket& packet, JoinRequest& request) const {
  if (std::memchr(packet.id, '\0', sizeof(packet.id)) == nullptr) {
    return fail(Errc::invalid_argument, "the group id's text does not end");
  }
  const auto id = parse_group_id(packet.id);
  if (!id) return tl::unexpected(id.error());
  request.id = *id;
  request.uid = to_hex(id->uid);
  if (packet.size < 1 || packet.size > kMaxRanks || packet.rank < 0 || packet.rank >= packet.size) {
    return fail(Errc::invalid_argument, "rank must be 0 .. size-1 and size 1 .. 1024");
  }
  request.rank = static_cast<std::uint32_t>(packet.rank);
  request.packet = packet;
  return {};
}

bool Joins::is_here(const GroupId& id) const {
  return id.host == settings_.advertise.host && id.port == settings_.advertise.port;
}

Status Joins::check(const Client& client, const JoinSet& set, const JoinRequest& request) const {
  // The first join of this node fixed the id; another secret for the same uid cannot be right.
  if (set.id != request.id) return fail(Errc::bad_secret, "the group id's secret is wrong");
  if (set.of_split && !request.split) {
    return fail(Errc::permission_denied,
                "the group has come of a split, and nobody else can join it");
  }
  for (const auto& [other, joining] : set.ranks) {
    if (joining.client != client.id) continue;
    return fail(Errc::invalid_argument,
                "this process is joining already, as rank " + std::to_string(other));
  }
  if (set.ranks.contains(request.rank)) {
    return fail(Errc::rank_taken, "rank " + std::to_string(request.rank) +
                                      " has been taken by another process of this node");
  }
  return {};
}

bool Joins::add(const Client& client, const JoinRequest& request) {
  const std::uint64_t number = request.packet.header.request;
  if (request.split) evict_early(request.uid);
  if (const auto known = joins_.find(request.uid); known != joins_.end()) {
    if (const auto checked = check(client, known->second, request); !checked) {
      const std::string group = short_group_uid(request.id);
      refusals_.join({client, number, group}, checked.error().code, checked.error().text);
      return false;
    }
  }
  JoinSet& set = joins_[request.uid];
  set.id = request.id;
  if (request.split) {
    set.of_split = true;
    set.lineage = request.split->lineage;
    set.coordinator = request.split->coordinator;
  } else {
    // The others' link may be lost, and nobody here has heard of it yet.
    move_to(set, link_to(request.id, client.credentials.uid));
  }
  JoiningRank& joining = set.ranks[request.rank];
  joining.client = client.id;
  joining.user = client.credentials.uid;
  joining.request = number;
  joining.rank = request.rank;
  std::array<std::byte, 16> nonce;
  random_bytes(nonce);
  joining.nonce = to_hex(nonce);
  std::uint64_t timeout = kDefaultJoinNs;
  if (request.packet.timeout_ms > 0) {
    timeout = ns_of_ms(static_cast<std::uint64_t>(request.packet.timeout_ms));
  }
  timeout = std::min(timeout, settings_.ops.join_timeout_max_ns);
  joining.since_ns = outlets_.clock.now_ns();
  joining.deadline_ns = joining.since_ns + timeout;
  joining.message = message_of(request, joining.nonce);
  if (request.split) joining.split = request.split->terms;
  ++outlets_.counters->joins;
  outlets_.post.send(set.coordinator, joining.message);
  return true;
}

nlohmann::json Joins::message_of(const JoinRequest& request, const std::string& nonce) const {
  const shm::GroupJoinPacket& packet = request.packet;
  const OpSettings& ops = settings_.ops;
  nlohmann::json message = {
      {"t", "join"},
      {"uid", request.uid},
      {"rank", request.rank},
      {"size", packet.size},
      {"nonce", nonce},
      {"node", node_text(outlets_.post.self())},
      {"address", net::to_text(settings_.advertise)},
      {"lanes", outlets_.lanes.lane_count()},
      {"chunk_bytes", ops.chunk_bytes},
      {"eager_bytes", ops.eager_bytes},
      {"max_ops", ops.max_ops_in_flight},
      {"cut", ops.cut},
      {"eager_form", ops.eager_form},
      {"rooted_form", ops.rooted_form},
      {"lossy_min", settings_.tensors.lossy_min_bytes},
      {"op_timeout_ms", packet.op_timeout_ms > 0
                            ? packet.op_timeout_ms
                            : static_cast<std::int64_t>(ops.op_timeout_ns / ns_of_ms(1))},
      {"verify", packet.verify != 0 || ops.verify},
      {"seed", static_cast<std::int64_t>(packet.seed)},
      {"completed", static_cast<std::int64_t>(packet.completed_ops)}};
  if (request.split) {
    const SplitTerms& split = request.split->terms;
    message["split"] = {{"parent", split.parent},
                        {"epoch", split.epoch},
                        {"sequence", split.sequence},
                        {"color", split.color},
                        {"key", split.key}};
  }
  return message;
}

void Joins::drop_client(std::uint64_t client) {
  for (auto& [uid, set] : joins_) {
    std::vector<std::uint32_t> ranks;
    for (const auto& [rank, joining] : set.ranks) {
      if (joining.client == client) ranks.push_back(rank);
    }
    for (const auto rank : ranks) {
      withdraw(set, set.ranks.at(rank));
      set.ranks.erase(rank);
    }
  }
  forget_empty();
}

// An epoch may begin with the join before the coordinator hears of the withdrawal.
void Joins::withdraw(const JoinSet& set, const JoiningRank& joining) {
  if (joining.late) return;  // it was withdrawn when its time ran out
  outlets_.post.send(set.coordinator, {{"t", "withdraw"},
                                       {"uid", to_hex(set.id.uid)},
                                       {"rank", joining.rank},
                                       {"nonce", joining.nonce}});
}

// ---- From the coordinator -----------------------------------------------------------------------

void Joins::prove(const JoinSet& set, JoiningRank& joining, const std::string& challenge) {
  joining.challenged = true;
  const std::string uid = to_hex(set.id.uid);
  const JoinProof proof{.uid = uid,
                        .member_nonce = joining.nonce,
                        .challenge = challenge,
                        .node = node_text(outlets_.post.self()),
                        .rank = joining.rank,
                        .size = number_of(joining.message, "size"),
                        .split = joining.split ? text_of(*joining.split) : std::string()};
  outlets_.post.send(set.coordinator, {{"t", "proof"},
                                       {"uid", uid},
                                       {"rank", joining.rank},
                                       {"nonce", joining.nonce},
                                       {"hmac", join_proof(set.id.secret, proof)}});
}

bool Joins::on_message(LinkRef from, const nlohmann::json& message) {
  static constexpr std::pair<std::string_view, HandleAnswer> kAnswers[] = {
      {"challenge", &Joins::on_challenge},
      {"refused", &Joins::on_refused},
      {"withdrawn", &Joins::on_withdrawn}};
  const std::string type = text_of(message, "t");
  if (type == "waiting") {
    on_waiting(from, message);
    return true;
  }
  for (const auto& [name, handle] : kAnswers) {
    if (type != name) continue;
    on_answer(from, message, handle);
    return true;
  }
  return false;
}

// The rank may have joined anew since; that join is not meant.
void Joins::on_answer(LinkRef from, const nlohmann::json& message, HandleAnswer handle) {
  const std::string uid = text_of(message, "uid");
  JoinSet* const set = find(from, uid);
  if (set == nullptr) return;
  const auto rank = static_cast<std::uint32_t>(number_of(message, "rank", -1));
  if (!set->waits(rank, text_of(message, "nonce"))) return;
  (this->*handle)(*set, set->ranks.at(rank), message);
  if (set->ranks.empty()) joins_.erase(uid);
}

void Joins::on_challenge(JoinSet& set, JoiningRank& joining, const nlohmann::json& message) {
  prove(set, joining, text_of(message, "challenge"));
}

void Joins::on_refused(JoinSet& set, JoiningRank& joining, const nlohmann::json& message) {
  refuse(set, joining.rank, errc_of(message, "code"), text_of(message, "text"));
}

void Joins::on_withdrawn(JoinSet& set, JoiningRank& joining, const nlohmann::json&) {
  if (joining.late) refuse_late(set, joining);
}

JoiningRank Joins::take(const std::string& uid, std::uint32_t rank) {
  const auto set = joins_.find(uid);
  JoiningRank joining = std::move(set->second.ranks.extract(rank).mapped());
  if (set->second.ranks.empty()) joins_.erase(set);
  return joining;
}

// Who has joined under the id of a split, or of a child, before there was one: its place is that of
// a rank of the group that is split.
void Joins::evict_early(const std::string& uid) {
  const auto known = joins_.find(uid);
  if (known == joins_.end() || known->second.of_split) return;
  refuse_all(known->second, Errc::permission_denied,
             "the group has come of a split, and nobody else can join it");
  joins_.erase(known);
}

void Joins::add_to_child(JoiningRank joining, LinkRef coordinator, const ChildPlace& place) {
  evict_early(to_hex(place.id.uid));
  JoinSet& child = joins_[to_hex(place.id.uid)];
  child.id = place.id;
  child.of_split = true;
  child.lineage = place.lineage;
  child.coordinator = coordinator;
  joining.rank = place.rank;
  // Only a coordinator that has lost its mind gives a place twice.
  if (child.ranks.contains(place.rank)) {
    refuse(child, place.rank, Errc::protocol_error, "the coordinator gave the rank's place away");
  }
  child.ranks[place.rank] = std::move(joining);
}

void Joins::on_waiting(LinkRef from, const nlohmann::json& message) {
  JoinSet* const set = find(from, text_of(message, "uid"));
  if (set == nullptr) return;
  auto& missing = set->missing.emplace();
  const auto said = message.find("missing");
  if (said == message.end() || !said->is_array()) return;
  for (const auto& one : *said) {
    if (!one.is_number_unsigned() || one.get<std::uint64_t>() >= kMaxRanks) continue;
    if (missing.size() < kMaxRanks) missing.push_back(one.get<std::uint32_t>());
  }
}

LinkRef Joins::link_to(const GroupId& id, std::uint32_t user) {
  if (is_here(id)) return kSelf;
  return outlets_.post.open({id.host, id.port, settings_.sub_users.owner_of(user)});
}

// What was asked on another link is asked again on this one.
void Joins::move_to(JoinSet& set, LinkRef coordinator) {
  if (set.coordinator == coordinator) return;
  // There is no last word on a link that is lost.
  for (auto at = set.ranks.begin(); at != set.ranks.end();) {
    const JoiningRank& joining = (at++)->second;
    if (joining.late) refuse_late(set, joining);
  }
  set.coordinator = coordinator;
  set.missing.reset();
  for (auto& [rank, joining] : set.ranks) {
    joining.challenged = false;
    outlets_.post.send(coordinator, joining.message);
  }
}

// ---- Links that are lost ------------------------------------------------------------------------

void Joins::on_link_lost(LinkRef link, bool worked, Errc code, const std::string& why) {
  lost_.push_back({link, worked, code, why});
}

int Joins::settle(const TimeSlice& slice) {
  int settled = 0;
  bool is_in_time = true;
  for (; is_in_time && !lost_.empty(); ++settled) {
    is_in_time = lose(lost_.front(), slice);
    if (is_in_time) lost_.pop_front();
  }
  if (is_in_time) settled += expire(slice);
  forget_empty();
  return settled;
}

// False: the slice is over, and there may be more.
bool Joins::lose(const LostLink& lost, const TimeSlice& slice) {
  for (auto& [uid, set] : joins_) {
    if (set.coordinator == lost.link && !lose(set, lost, slice)) return false;
  }
  return true;
}

// A link that has worked may be to a daemon that was restarted since: what was asked on it is asked
// again on a new one. That one has not worked yet, so that this happens once. Of a split nothing is
// asked again: with its coordinator the group that was split ends.
bool Joins::lose(JoinSet& set, const LostLink& lost, const TimeSlice& slice) {
  if (lost.worked && !set.of_split && !set.ranks.empty()) {
    move_to(set, link_to(set.id, set.ranks.begin()->second.user));
    return !slice.is_over();
  }
  const bool is_refusal = lost.code != Errc::ok;
  const std::string text = "the group's coordinator at " + place_of(set.id) +
                           (is_refusal ? " takes no link: " : " cannot be reached: ") + lost.why;
  while (!set.ranks.empty()) {
    const auto& [rank, joining] = *set.ranks.begin();
    if (joining.late) {
      refuse_late(set, joining);
    } else {
      refuse(set, rank, is_refusal ? lost.code : Errc::unreachable, text);
    }
    if (slice.is_over()) return false;
  }
  return true;
}

// ---- Refusals -----------------------------------------------------------------------------------

void Joins::refuse(JoinSet& set, std::uint32_t rank, Errc code, const std::string& text) {
  const auto found = set.ranks.find(rank);
  if (found == set.ranks.end()) return;
  const Client& client = clients_.at(found->second.client);  // which takes its joins with it
  const std::string group = short_group_uid(set.id);
  refusals_.join({client, found->second.request, group}, code, text);
  set.ranks.erase(found);
  failed_ = true;
}

void Joins::refuse_all(JoinSet& set, Errc code, const std::string& text) {
  while (!set.ranks.empty()) refuse(set, set.ranks.begin()->first, code, text);
}

void Joins::end_all(Errc code, const std::string& text) {
  for (auto& [uid, set] : joins_) refuse_all(set, code, text);
  joins_.clear();
}

// The time of a join has run out. The epoch may be about to begin all the same, so the coordinator
// has the last word.
void Joins::expire_join(JoinSet& set, JoiningRank& joining) {
  const bool was_late = joining.late;
  const bool heard = outlets_.post.reaches(set.coordinator);
  withdraw(set, joining);
  joining.late = true;
  joining.deadline_ns = outlets_.clock.now_ns() + kLastWordNs;
  if (was_late || !(heard || joining.challenged)) refuse_late(set, joining);
}

void Joins::refuse_late(JoinSet& set, const JoiningRank& joining) {
  const std::string where = place_of(set.id);
  const std::uint32_t rank = joining.rank;
  if (joining.challenged && !set.missing) {
    refuse(set, rank, Errc::timeout, "the coordinator at " + where + " did not answer in time");
  } else if (joining.challenged) {
    refuse(set, rank, Errc::timeout,
           set.missing->empty() ? "all ranks are there, but the group's last epoch has not ended"
                                : "waited for rank " + join_numbers(*set.missing));
  } else if (outlets_.post.reaches(set.coordinator)) {
    refuse(set, rank, Errc::unknown_group,
           "the daemon at " + where + " does not know the group; was it restarted? mint a new id");
  } else {
    refuse(set, rank, Errc::unreachable,
           "the group's coordinator at " + where + " cannot be reached");
  }
}

int Joins::expire(const TimeSlice& slice) {
  const std::uint64_t now = outlets_.clock.now_ns();
  int expired = 0;
  for (auto& [uid, set] : joins_) {
    for (auto at = set.ranks.begin(); at != set.ranks.end();) {
      JoiningRank& joining = (at++)->second;
      if (now < joining.deadline_ns) continue;
      expire_join(set, joining);
      ++expired;
      if (slice.is_over()) return expired;
    }
  }
  return expired;
}

}  // namespace tern::daemon
