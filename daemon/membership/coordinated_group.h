#pragma once

// A group as its coordinator has it: who has joined, who is in its epoch, and what it has come of.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "daemon/membership/control_frames.h"
#include "daemon/membership/join_terms.h"
#include "daemon/service/shared_places.h"

namespace tern::daemon {

struct CoordinatedGroup {
  enum class Phase : std::uint8_t { gathering, starting, active };
  // Of a split: the ranks that gather for it, or a group that has come of it.
  enum class Part : std::uint8_t { none, gathering, child };

  // One that has asked, and how it is answered.
  struct Asker {
    LinkRef link = 0;
    std::string nonce;
  };
  struct Joiner {
    LinkRef link = 0;
    JoinTerms says;
    std::uint64_t deadline_ns = 0;  // of what is due from it, until it has proven itself
    std::string challenge;
    bool proven = false;
    std::optional<SharedPlaces::Held> place;  // none: a rank of this node

    Asker asker() const { return {link, says.nonce}; }
    // Whether it is of another daemon at the other one's address, if it proves itself. Then it is
    // the other one that is gone: only one daemon can listen there, this one has answered a moment
    // ago, and other nodes know no more of them than the address. The coordinator's own daemon,
    // whose ranks have kSelf, is not gone.
    bool replaces(const Joiner& other) const {
      return other.proven && other.link != kSelf && other.says.address == says.address &&
             other.says.node != says.node;
    }
  };
  using Joiners = std::map<std::uint32_t, Joiner>;  // by rank
  struct Node {
    LinkRef link = 0;
    std::string id;
    std::string address;
    std::vector<std::uint32_t> ranks;
    bool ready = false;

    bool has(std::uint32_t rank) const {
      return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
    }
  };

  bool known = false;
  std::array<std::byte, 32> secret{};
  std::uint32_t epoch = 0;
  std::string incarnation;  // of the epoch, which has a random name too
  std::int64_t splits = 0;  // of the epoch: one gathers at a time
  Phase phase = Phase::gathering;
  Joiners joiners;  // for the next epoch
  // Not proven yet: each came while a proven joiner had its rank, whom it would replace.
  Joiners challengers;
  std::uint32_t size = 0;            // what the first of the proven ones said
  std::uint64_t waiting_due_ns = 0;  // when they may be told next whom they wait for
  std::vector<Node> nodes;           // of the current epoch
  std::set<std::uint32_t> left;
  std::uint32_t ranks = 0;
  std::uint32_t user = 0;       // who is charged with it, if it is known
  std::uint64_t last_used = 0;  // order of the last mint or join on this node, if it is known
  std::optional<SharedPlaces::Held> place;  // while it is not known
  Part part = Part::none;
  std::string parent;  // uid of what is split; empty: it was minted
  std::string loss;    // of a node, in words: by it the epoch ends; empty: it has all
  Status end;          // why the epoch has ended, while none is current

  bool idle() const { return phase == Phase::gathering && joiners.empty() && challengers.empty(); }
  // Only joins of other nodes spoke of it, or it is a part of a split, to which nobody comes back.
  bool is_unused() const { return joiners.empty() && (!known || (part != Part::none && idle())); }
  std::size_t proven() const {
    return static_cast<std::size_t>(std::count_if(
        joiners.begin(), joiners.end(), [](const auto& one) { return one.second.proven; }));
  }
  // Where a join waits until it has proven itself.
  Joiners& list_for(std::uint32_t rank, const Joiner& joiner) {
    const auto found = joiners.find(rank);
    return found != joiners.end() && joiner.replaces(found->second) ? challengers : joiners;
  }
  // Null: there is none of this name.
  Joiner* find_joiner(std::uint32_t rank, const Asker& asker) {
    for (Joiners* const list : {&joiners, &challengers}) {
      const auto found = list->find(rank);
      if (found == list->end() || found->second.link != asker.link) continue;
      if (found->second.says.nonce == asker.nonce) return &found->second;
    }
    return nullptr;
  }
  // Those of the rank that came by the link.
  void forget_joiners(LinkRef link, std::uint32_t rank) {
    for (Joiners* const list : {&joiners, &challengers}) {
      const auto found = list->find(rank);
      if (found != list->end() && found->second.link == link) list->erase(found);
    }
  }
  // Those that came by such links.
  template <typename IsLost>
  void forget_joiners_by(const IsLost& is_lost) {
    for (Joiners* const list : {&joiners, &challengers}) {
      std::erase_if(*list, [&](const auto& one) { return is_lost(one.second.link); });
    }
  }
  bool is_waited_for() const { return proven() > 0; }
  // Where the nodes of the epoch are.
  std::vector<LinkRef> links_of_nodes() const {
    std::vector<LinkRef> links;
    for (const Node& node : nodes) links.push_back(node.link);
    return links;
  }
  // Where those wait that have proven themselves: each link once.
  std::vector<LinkRef> links_of_proven() const {
    std::set<LinkRef> links;
    for (const auto& [rank, joiner] : joiners) {
      if (joiner.proven) links.insert(joiner.link);
    }
    return {links.begin(), links.end()};
  }
  // Whether other nodes are in it, or have proven that they want to join.
  bool is_of_others() const {
    return std::any_of(nodes.begin(), nodes.end(),
                       [](const Node& node) { return node.link != kSelf; }) ||
           std::any_of(joiners.begin(), joiners.end(), [](const auto& one) {
             return one.second.proven && one.second.link != kSelf;
           });
  }
};

}  // namespace tern::daemon
