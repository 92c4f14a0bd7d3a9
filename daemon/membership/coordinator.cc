#include "daemon/membership/coordinator.h"

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "collective/slots.h"
#include "daemon/control/foreign_json.h"
#include "daemon/membership/epoch_terms.h"
#include "daemon/membership/group_proofs.h"
#include "daemon/membership/hmac.h"
#include "daemon/membership/member_list.h"

namespace tern::daemon {
namespace {

// Of what another daemon says of an epoch's end, so much is kept.
constexpr std::size_t kMaxEndText = 1024;
constexpr const char* kAnotherSize = "the group's other ranks agreed on another size";
// Between two lists of those for whom a group waits.
constexpr std::uint64_t kWaitingNs = 250'000'000;

std::string random_hex() {
  std::array<std::byte, 16> bytes;
  random_bytes(bytes);
  return to_hex(bytes);
}

}  // namespace

void Coordinator::learn(const GroupId& id, std::uint32_t user) {
  if (!groups_.learn(id, user)) return;
  const std::string uid = to_hex(id.uid);
  for (auto& [rank, joiner] : groups_.at(uid).joiners) challenge(uid, rank, joiner);
}

bool Coordinator::on_message(LinkRef from, const nlohmann::json& message) {
  using Handle = void (Coordinator::*)(LinkRef, const std::string&, const nlohmann::json&);
  using HandleOfMember = void (Coordinator::*)(const Member&, const nlohmann::json&);
  // From whoever wants to be in the next epoch, and from nodes of the current one.
  static constexpr std::pair<std::string_view, Handle> kOfJoiners[] = {
      {"join", &Coordinator::on_join},
      {"proof", &Coordinator::on_proof},
      {"withdraw", &Coordinator::on_withdraw}};
  static constexpr std::pair<std::string_view, HandleOfMember> kOfMembers[] = {
      {"ready", &Coordinator::on_ready},
      {"ended", &Coordinator::on_ended},
      {"left", &Coordinator::on_left}};
  const std::string type = text_of(message, "t");
  const std::string uid = text_of(message, "uid");
  if (uid.size() != 32) return false;
  end_if_lost(uid);
  for (const auto& [name, handle] : kOfJoiners) {
    if (type != name) continue;
    (this->*handle)(from, uid, message);
    return true;
  }
  for (const auto& [name, handle] : kOfMembers) {
    if (type != name) continue;
    Group* const group = groups_.find(uid);
    if (group == nullptr || number_of(message, "epoch") != group->epoch) return true;
    const auto node = std::find_if(group->nodes.begin(), group->nodes.end(),
                                   [from](const Node& one) { return one.link == from; });
    if (node != group->nodes.end()) (this->*handle)({uid, *group, *node}, message);
    return true;
  }
  return false;
}

void Coordinator::on_ready(const Member& member, const nlohmann::json&) {
  Group& group = member.group;
  if (group.phase != Phase::starting) return;
  member.node.ready = true;
  if (!std::all_of(group.nodes.begin(), group.nodes.end(),
                   [](const Node& one) { return one.ready; })) {
    return;
  }
  group.phase = Phase::active;
  sender_.send_to_all(group.links_of_nodes(),
                      {{"t", "start"}, {"uid", member.uid}, {"epoch", group.epoch}});
}

void Coordinator::on_ended(const Member& member, const nlohmann::json& message) {
  end_epoch(member.uid, member.group, errc_of(message, "code"), text_of(message, "text"));
  groups_.forget_unused();
}

void Coordinator::on_left(const Member& member, const nlohmann::json& message) {
  const auto rank = static_cast<std::uint32_t>(number_of(message, "rank", -1));
  if (!member.node.has(rank)) return;
  member.group.left.insert(rank);
  if (member.group.left.size() != member.group.ranks) return;
  end_epoch(member.uid, member.group, Errc::group_left, "all ranks have left the group");
  groups_.forget_unused();
}

void Coordinator::on_join(LinkRef from, const std::string& uid, const nlohmann::json& message) {
  Joiner joiner;
  joiner.link = from;
  const auto said = parse_join_terms(message);
  const auto rank = static_cast<std::uint32_t>(said ? said->rank : number_of(message, "rank", -1));
  if (!said) {
    const Asker asker{from, text_of(message, "nonce").substr(0, kNonceDigits)};
    return refuse({uid, rank}, asker, Errc::protocol_error, "the join message is malformed");
  }
  joiner.says = *said;
  if (said->size < 1 || said->size > kMaxRanks || said->rank < 0 || said->rank >= said->size) {
    return refuse({uid, rank}, joiner.asker(), Errc::invalid_argument,
                  "rank must be 0 .. size-1 and size 1 .. 1024");
  }
  if (const Status allowed = judge_split(from, uid, *said); !allowed) {
    return refuse({uid, rank}, joiner.asker(), allowed.error().code, allowed.error().text);
  }
  if (Group* const known = groups_.find(uid)) {
    known->forget_joiners(from, rank);  // it joins anew
    const Status vacated = vacate({uid, rank}, known->list_for(rank, joiner));
    if (!vacated) {
      return refuse({uid, rank}, joiner.asker(), vacated.error().code, vacated.error().text);
    }
  }
  if (const Status admitted = admit(uid, joiner); !admitted) {
    refuse({uid, rank}, joiner.asker(), admitted.error().code, admitted.error().text);
    return groups_.forget_if_unused(uid);
  }
  Group& group = groups_.at(uid);
  joiner.deadline_ns = clock_.now_ns() + kStrangerNs;
  Joiner& stored = group.list_for(rank, joiner)[rank] = std::move(joiner);
  if (group.known) challenge(uid, rank, stored);
}

// Only a rank that has proven itself holds its place.
Status Coordinator::vacate(const Place& place, Group::Joiners& list) {
  const auto found = list.find(place.rank);
  if (found == list.end()) return {};
  const Joiner& holder = found->second;
  if (holder.proven) {
    return fail(Errc::rank_taken,
                "rank " + std::to_string(place.rank) + " has joined from node " + holder.says.node);
  }
  refuse(place, holder.asker(), Errc::rank_taken, "another process joined first");
  list.erase(found);
  return {};
}

Status Coordinator::admit(const std::string& uid, Joiner& joiner) {
  if (joiner.link == kSelf) {
    groups_.add_own(uid);
    return {};
  }
  const std::string source = sender_.source_of(joiner.link);
  joiner.place = joiners_.take(source);
  if (joiner.place) return groups_.add_stranger(uid, source);
  return fail(Errc::quota_exceeded, "the coordinator holds " + std::to_string(joiners_.of(source)) +
                                        " joins that came from " + source +
                                        ", as many as it has room for; try again later");
}

void Coordinator::challenge(const std::string& uid, std::uint32_t rank, Joiner& joiner) {
  joiner.challenge = random_hex();
  joiner.deadline_ns = clock_.now_ns() + kProofNs;
  sender_.send(joiner.link, {{"t", "challenge"},
                             {"uid", uid},
                             {"rank", rank},
                             {"nonce", joiner.says.nonce},
                             {"challenge", joiner.challenge}});
}

void Coordinator::on_proof(LinkRef from, const std::string& uid, const nlohmann::json& message) {
  Group* const known = groups_.find(uid);
  if (known == nullptr) return;
  Group& group = *known;
  const auto rank = static_cast<std::uint32_t>(number_of(message, "rank", -1));
  Joiner* const found = group.find_joiner(rank, {from, text_of(message, "nonce")});
  if (found == nullptr || found->challenge.empty() || found->proven) return;
  Joiner joiner = std::move(*found);
  group.forget_joiners(from, rank);
  const std::int64_t size = joiner.says.size;
  const std::optional<SplitTerms>& split = joiner.says.split;
  const std::string expected =
      join_proof(group.secret, {uid, joiner.says.nonce, joiner.challenge, joiner.says.node, rank,
                                size, split ? text_of(*split) : ""});
  if (!equal_constant_time(bytes_of(expected), bytes_of(text_of(message, "hmac")))) {
    return refuse({uid, rank}, joiner.asker(), Errc::bad_secret, "the group id's secret is wrong");
  }
  // From here on the joiner is known to have the id.
  drop_replaced(uid, group, joiner);
  if (group.phase != Phase::gathering) {
    for (const Node& node : group.nodes) {
      if (node.id != joiner.says.node && node.address == joiner.says.address) {
        // Another daemon answers at this node's address: the one in the group is gone.
        end_epoch(uid, group, Errc::peer_lost,
                  "the daemon at " + joiner.says.address + " was restarted");
        // The next epoch may have begun at once, with fewer ranks than this joiner speaks of.
        if (group.phase != Phase::gathering) {
          return refuse({uid, rank}, joiner.asker(), Errc::wrong_size, kAnotherSize);
        }
        break;
      }
      if (node.has(rank) && !group.left.contains(rank)) {
        return refuse({uid, rank}, joiner.asker(), Errc::rank_taken,
                      "rank " + std::to_string(rank) + " is in use by node " + node.address);
      }
    }
  }
  for (const auto& [other_rank, other] : group.joiners) {
    const std::int64_t other_size = other.says.size;
    if (!other.proven || other_size == size) continue;
    return refuse({uid, rank}, joiner.asker(), Errc::wrong_size,
                  "rank " + std::to_string(rank) + " says size " + std::to_string(size) +
                      ", rank " + std::to_string(other_rank) + " says " +
                      std::to_string(other_size));
  }
  // Whom a challenger challenged may have gone, and another may have asked since.
  if (const Status vacated = vacate({uid, rank}, group.joiners); !vacated) {
    return refuse({uid, rank}, joiner.asker(), vacated.error().code, vacated.error().text);
  }
  joiner.proven = true;
  group.joiners[rank] = std::move(joiner);
  group.size = static_cast<std::uint32_t>(size);
  note_proven(uid, group);
  if (group.phase != Phase::gathering || group.proven() != group.size) return;
  if (group.part == Part::gathering) return divide_gathered(uid);
  start_epoch(uid, group);
}

// Answered also if there is nothing to take back: what was said before, such as the list of members
// of an epoch that has begun with this join, has arrived by then.
void Coordinator::on_withdraw(LinkRef from, const std::string& uid, const nlohmann::json& message) {
  const auto rank = static_cast<std::uint32_t>(number_of(message, "rank", -1));
  const std::string nonce = text_of(message, "nonce");
  if (nonce.size() != kNonceDigits) return;
  begin_child_of({uid, rank});
  if (Group* const found = groups_.find(uid)) {
    if (found->find_joiner(rank, {from, nonce}) != nullptr) {
      found->forget_joiners(from, rank);
      groups_.forget_if_unused(uid);
    }
  }
  sender_.send(from, {{"t", "withdrawn"}, {"uid", uid}, {"rank", rank}, {"nonce", nonce}});
}

void Coordinator::refuse(const Place& place, const Asker& asker, Errc code,
                         const std::string& text) {
  sender_.send(asker.link, {{"t", "refused"},
                            {"uid", place.uid},
                            {"rank", place.rank},
                            {"nonce", asker.nonce},
                            {"code", static_cast<int>(code)},
                            {"text", text}});
}

void Coordinator::drop(const Place& place, Errc code, const std::string& text) {
  const auto dropped = groups_.at(place.uid).joiners.extract(place.rank);
  refuse(place, dropped.mapped().asker(), code, text);
}

void Coordinator::note_proven(const std::string& uid, Group& group) {
  if (clock_.now_ns() >= group.waiting_due_ns) return tell_waiting(uid, group);
  changed_.emplace(group.waiting_due_ns, uid);
}

int Coordinator::tell_changed(const TimeSlice& slice) {
  const std::uint64_t now = clock_.now_ns();
  int told = 0;
  while (!changed_.empty() && changed_.begin()->first <= now) {
    const std::string uid = std::move(changed_.extract(changed_.begin()).value().second);
    Group* const group = groups_.find(uid);
    if (group == nullptr) continue;
    hear_of_lost(uid, *group);
    if (group->joiners.empty()) continue;
    tell_waiting(uid, *group);
    ++told;
    if (slice.is_over()) break;
  }
  return told;
}

// All joins of a daemon that is gone, not that of one rank alone: no epoch begins with some ranks
// of it and some of its successor. It is told, for it may live after all.
void Coordinator::drop_replaced(const std::string& uid, Group& group, const Joiner& by) {
  std::erase_if(group.joiners, [&](const auto& one) {
    if (!by.replaces(one.second)) return false;
    refuse({uid, one.first}, one.second.asker(), Errc::peer_lost,
           "another daemon has joined from " + by.says.address);
    return true;
  });
}

void Coordinator::refuse_all(const std::string& uid, Group& group, Errc code,
                             const std::string& text) {
  for (Group::Joiners* const list : {&group.joiners, &group.challengers}) {
    for (const auto& [rank, joiner] : *list) refuse({uid, rank}, joiner.asker(), code, text);
    list->clear();
  }
}

// So that a member whose time runs out can say who was missing. A list is as long as the group is
// large, and goes to all: one for each rank that comes would be the square of the ranks.
void Coordinator::tell_waiting(const std::string& uid, Group& group) {
  group.waiting_due_ns = clock_.now_ns() + kWaitingNs;
  nlohmann::json missing = nlohmann::json::array();
  for (std::uint32_t rank = 0; rank < group.size; ++rank) {
    const auto found = group.joiners.find(rank);
    if (found == group.joiners.end() || !found->second.proven) missing.push_back(rank);
  }
  sender_.send_to_all(group.links_of_proven(),
                      {{"t", "waiting"}, {"uid", uid}, {"missing", std::move(missing)}});
}

void Coordinator::start_epoch(const std::string& uid, Group& group) {
  std::vector<Node> nodes;  // in order of their lowest rank, because joiners are in order of rank
  std::map<std::string, std::vector<std::string>> nonces;  // of their joins
  EpochTerms terms;
  for (auto& [rank, joiner] : group.joiners) {
    if (!joiner.proven) continue;
    auto node = std::find_if(nodes.begin(), nodes.end(),
                             [&id = joiner.says.node](const Node& one) { return one.id == id; });
    if (node == nodes.end()) {
      nodes.push_back(Node{joiner.link, joiner.says.node, joiner.says.address, {}, false});
      node = nodes.end() - 1;
    }
    node->ranks.push_back(rank);
    const JoinTerms& says = joiner.says;
    nonces[says.node].push_back(says.nonce);
    terms.add(says);
  }
  std::string problem;
  if (nodes.size() > collective::kMaxNodes) problem = "a group spans at most 64 nodes";
  for (const Node& node : nodes) {
    if (node.ranks.size() > collective::kMaxLocalRanks)
      problem = "a node has at most 64 ranks of a group";
  }
  if (!problem.empty()) return refuse_all(uid, group, Errc::unsupported, problem);
  group.incarnation = random_hex();
  group.splits = 0;
  group.end = {};
  nlohmann::json body = {{"uid", uid},
                         {"epoch", group.epoch + 1},
                         {"incarnation", group.incarnation},
                         {"size", group.size},
                         {"last_common_op", group.epoch == 0 ? 0 : terms.common_ops()},
                         {"nodes", nlohmann::json::array()}};
  terms.write_to(body);
  for (const Node& node : nodes) {
    body["nodes"].push_back({{"id", node.id},
                             {"address", node.address},
                             {"ranks", node.ranks},
                             {"nonces", nonces[node.id]}});
  }
  const std::string text = json_text(body);
  ++group.epoch;
  group.phase = Phase::starting;
  group.left.clear();
  group.ranks = group.size;
  // All ranks that there are have proven themselves: others speak of a larger group.
  for (const auto& [rank, joiner] : group.joiners) {
    if (joiner.proven) continue;
    refuse({uid, rank}, joiner.asker(), Errc::wrong_size, kAnotherSize);
  }
  group.joiners.clear();
  group.nodes = std::move(nodes);
  const std::string proof = members_proof(group.secret, text);
  sender_.send_to_all(group.links_of_nodes(),
                      {{"t", "members"}, {"uid", uid}, {"body", text}, {"hmac", proof}});
}

void Coordinator::end_epoch(const std::string& uid, Group& group, Errc code,
                            const std::string& text) {
  if (group.phase == Phase::gathering) return;
  group.loss.clear();
  sender_.send_to_all(group.links_of_nodes(), {{"t", "end"},
                                               {"uid", uid},
                                               {"epoch", group.epoch},
                                               {"code", static_cast<int>(code)},
                                               {"text", text}});
  group.nodes.clear();
  group.phase = Phase::gathering;
  group.end = fail(code, text.substr(0, kMaxEndText));
  end_gatherings(uid, code, text);
  // Ranks that rejoined before they heard of the end were waiting for it.
  if (!group.joiners.empty() && group.proven() == group.size) start_epoch(uid, group);
}

void Coordinator::add_links(std::set<LinkRef>& links) const {
  for (const auto& [uid, group] : groups_) {
    for (const auto* const list : {&group.joiners, &group.challengers}) {
      for (const auto& [rank, joiner] : *list) links.insert(joiner.link);
    }
    for (const Node& node : group.nodes) links.insert(node.link);
  }
  for (const Division& division : divisions_) {
    for (const auto& [rank, joiner] : division.gathered.joiners) links.insert(joiner.link);
  }
}

bool Coordinator::is_gathering() const {
  return std::any_of(groups_.begin(), groups_.end(), [](const auto& one) {
    return one.second.part == Part::none && one.second.is_waited_for();
  });
}

bool Coordinator::has_begun(const std::string& uid) const {
  const Group* const group = groups_.find(uid);
  return group != nullptr && (group->phase != Phase::gathering || group->is_waited_for());
}

std::size_t Coordinator::groups_of_others() const {
  const auto of_groups = std::count_if(groups_.begin(), groups_.end(),
                                       [](const auto& one) { return one.second.is_of_others(); });
  const auto of_divisions =
      std::count_if(divisions_.begin(), divisions_.end(),
                    [](const Division& one) { return one.gathered.is_of_others(); });
  return static_cast<std::size_t>(of_groups + of_divisions);
}

bool Coordinator::expire(const TimeSlice& slice) {
  const std::uint64_t now = clock_.now_ns();
  bool is_in_time = true;
  for (auto group = groups_.begin(); is_in_time && group != groups_.end(); ++group) {
    auto& joiners = group->second.joiners;
    for (auto at = joiners.begin(); is_in_time && at != joiners.end();) {
      const auto& [rank, joiner] = *at++;
      if (joiner.proven || joiner.link == kSelf || now < joiner.deadline_ns) continue;
      if (group->second.known) {
        drop({group->first, rank}, Errc::timeout, "no proof of the group's secret came in time");
      } else {
        drop({group->first, rank}, Errc::unknown_group,
             "nobody on the coordinator's node has joined the group; was its daemon restarted? "
             "mint a new id");
      }
      is_in_time = !slice.is_over();
    }
  }
  groups_.forget_unused();
  return is_in_time;
}

bool Coordinator::expire_challengers(const TimeSlice& slice) {
  const std::uint64_t now = clock_.now_ns();
  for (auto& [uid, group] : groups_) {
    for (auto at = group.challengers.begin(); at != group.challengers.end();) {
      const auto& [rank, joiner] = *at;
      if (now < joiner.deadline_ns) {
        ++at;
        continue;
      }
      refuse({uid, rank}, joiner.asker(), Errc::timeout,
             "no proof of the group's secret came in time");
      at = group.challengers.erase(at);
      if (slice.is_over()) return false;
    }
  }
  return true;
}

}  // namespace tern::daemon
