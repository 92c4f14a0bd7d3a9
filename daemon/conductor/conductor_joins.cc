// Joins of this node's ranks, until their epoch begins or they are refused.

#include <algorithm>
#include <array>
#include <cstring>

#include "daemon/conductor/conductor.h"
#include "daemon/membership/hmac.h"

namespace tern::daemon {
namespace {

constexpr std::uint64_t kDefaultJoinNs = 60'000'000'000;
constexpr std::uint64_t kLastWordNs = ns_of_ms(shm::kJoinLastWordMs);

}  // namespace

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
  if (packet.size < 1 || packet.size > kMaxRanks || packet.rank < 0 || packet.rank >= packet.size) {
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
  std::uint64_t timeout = kDefaultJoinNs;
  if (packet.timeout_ms > 0) timeout = ns_of_ms(static_cast<std::uint64_t>(packet.timeout_ms));
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
                            : static_cast<std::int64_t>(settings_.op_timeout_ns / ns_of_ms(1))},
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
  set.missing.reset();
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

// An epoch may begin with it before the coordinator hears of that.
void Conductor::withdraw(const JoinSet& set, const JoiningRank& joining) {
  if (joining.late) return;  // it has been
  send(set.coordinator, {{"t", "withdraw"},
                         {"uid", to_hex(set.id.uid)},
                         {"rank", joining.rank},
                         {"nonce", joining.nonce}});
}

// What the coordinator says of one join. The rank may have joined anew since; that is not meant.
void Conductor::on_join_answer(LinkRef from, const std::string& type,
                               const nlohmann::json& message) {
  const std::string uid = text_of(message, "uid");
  const std::string nonce = text_of(message, "nonce");
  const auto found = joins_.find(uid);
  if (found == joins_.end() || found->second.coordinator != from) return;
  JoinSet& set = found->second;
  const auto rank = static_cast<std::uint32_t>(number_of(message, "rank", -1));
  const auto one = set.ranks.find(rank);
  if (one == set.ranks.end() || one->second.nonce != nonce) return;
  JoiningRank& joining = one->second;
  if (type == "challenge") {
    joining.challenged = true;
    const std::string proof =
        join_proof(set.id.secret, uid, nonce, text_of(message, "challenge"), node_text(self_), rank,
                   number_of(joining.message, "size"));
    send(from, {{"t", "proof"}, {"uid", uid}, {"rank", rank}, {"nonce", nonce}, {"hmac", proof}});
  } else if (type == "refused") {
    refuse_join(set, rank, errc_of(message, "code"), text_of(message, "text"));
  } else if (joining.late) {
    refuse_late_join(set, joining);
  }
  if (set.ranks.empty()) joins_.erase(found);
}

// The time of a join has run out. The epoch may be about to begin all the same, so the coordinator
// has the last word.
void Conductor::expire_join(JoinSet& set, JoiningRank& joining) {
  const bool heard = set.coordinator == kSelf || links_.is_open(set.coordinator);
  const bool was_late = joining.late;
  withdraw(set, joining);
  joining.late = true;
  joining.deadline_ns = clock_.now_ns() + kLastWordNs;
  if (was_late || !(heard || joining.challenged)) refuse_late_join(set, joining);
}

void Conductor::refuse_late_join(JoinSet& set, const JoiningRank& joining) {
  const std::string where = set.id.host + ":" + std::to_string(set.id.port);
  if (joining.challenged && !set.missing) {
    refuse_join(set, joining.rank, Errc::timeout,
                "the coordinator at " + where + " did not answer in time");
  } else if (joining.challenged) {
    refuse_join(set, joining.rank, Errc::timeout,
                set.missing->empty()
                    ? "all ranks are there, but the group's last epoch has not ended"
                    : "waited for rank " + join_numbers(*set.missing));
  } else if (set.coordinator == kSelf || links_.is_open(set.coordinator)) {
    refuse_join(
        set, joining.rank, Errc::unknown_group,
        "the daemon at " + where + " does not know the group; was it restarted? mint a new id");
  } else {
    refuse_join(set, joining.rank, Errc::unreachable,
                "the group's coordinator at " + where + " cannot be reached");
  }
}

// There is no last word on a link that is lost.
void Conductor::refuse_late_joins(JoinSet& set) {
  std::vector<std::uint32_t> late;
  for (const auto& [rank, joining] : set.ranks) {
    if (joining.late) late.push_back(rank);
  }
  for (const auto rank : late) refuse_late_join(set, set.ranks.at(rank));
}

void Conductor::expire_joins() {
  const std::uint64_t now = clock_.now_ns();
  for (auto& [uid, set] : joins_) {
    std::vector<std::uint32_t> due;
    for (const auto& [rank, joining] : set.ranks) {
      if (now >= joining.deadline_ns) due.push_back(rank);
    }
    for (const auto rank : due) expire_join(set, set.ranks.at(rank));
  }
  std::erase_if(joins_, [](const auto& one) { return one.second.ranks.empty(); });
}

}  // namespace tern::daemon
