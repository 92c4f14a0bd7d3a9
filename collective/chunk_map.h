#pragma once

#include <cstdint>
#include <variant>

#include "collective/group_shape.h"
#include "collective/pair_chunks.h"
#include "collective/relayed_chunks.h"
#include "collective/share_chunks.h"
#include "collective/slots.h"
#include "collective/whole_chunks.h"
#include "plan/plan.h"
#include "shm/sharding.h"

namespace tern::collective {

// Which chunks of an op a node owns on one lane, in the order in which they are worked on, and
// which nodes get their results. Both are the plan's.
class ChunkMap {
 public:
  static constexpr std::uint32_t kEveryNode = kNoSlot;

  ChunkMap() = default;
  // What ranks have said of the op.
  struct Said {
    std::uint32_t root_node = 0;                  // of a plan that has a root
    const std::uint64_t* share_begins = nullptr;  // see ShareChunks
    const PairCounts* pairs = nullptr;            // see PairChunks
  };
  // The group's shape and what ranks have said outlive this.
  ChunkMap(const plan::Plan& plan, const shm::Sharding& sharding, const GroupShape& group,
           const Said& said)
      : group_(&group),
        receivers_(plan.receivers),
        root_owns_(plan.ownership == plan::Ownership::root_node),
        root_node_(said.root_node) {
    const std::uint32_t owner = root_owns_ ? said.root_node : kNoSlot;
    if (plan.has_shares()) {
      chunks_ = ShareChunks(sharding, group, owner, said.share_begins);
    } else if (plan.has_pairs()) {
      chunks_ = PairChunks(sharding, group, said.pairs);
    } else if (plan.has_relays()) {
      chunks_ = RelayedChunks(sharding, group, said.root_node, plan.moves());
    } else {
      chunks_ = WholeChunks(sharding, group.lane, owner);
    }
  }

  // How many chunks `node` owns on this lane; where others send on what the root has, a root all.
  std::uint32_t owned(std::uint32_t node) const noexcept {
    return std::visit([&](const auto& chunks) { return chunks.owned(node); }, chunks_);
  }
  // Of the chunks of `owner`, those whose results go to `node`, which is another; of pairs, this
  // node.
  std::uint32_t sent(std::uint32_t owner, std::uint32_t node) const noexcept {
    if (receivers_ == plan::Ranks::partner) {
      return std::get<PairChunks>(chunks_).received_from(owner);
    }
    if (is_sent_on()) {
      return node == root_node_ ? 0 : owned(owner == root_node_ ? node : owner);
    }
    if (receivers_ == plan::Ranks::every) return owned(owner);
    if (receivers_ == plan::Ranks::root) return node == root_node_ ? owned(owner) : 0;
    // Who owns the shares of others is the root.
    const bool owns_all = root_owns_ && owner == root_node_;
    return owns_all ? std::get<ShareChunks>(chunks_).in_shares_of(node) : 0;
  }

  // The number of the index-th chunk that `node` owns here. REQUIRES: index < owned(node).
  std::uint32_t chunk(std::uint32_t node, std::uint32_t index) const noexcept {
    return std::visit([&](const auto& chunks) { return chunks.chunk(node, index); }, chunks_);
  }
  // The inverse. REQUIRES: is_sent_on().
  std::uint32_t index(std::uint32_t node, std::uint32_t chunk) const noexcept {
    return std::get<RelayedChunks>(chunks_).index(node, chunk);
  }
  // Whether it is one of them; of pairs, one for this node.
  bool has(std::uint32_t node, std::uint32_t chunk) const noexcept {
    if (const auto* const pairs = std::get_if<PairChunks>(&chunks_)) {
      return pairs->has(node, chunk);
    }
    if (const auto* const shares = std::get_if<ShareChunks>(&chunks_)) {
      return shares->index(node, chunk) != kNoSlot;
    }
    if (const auto* const relayed = std::get_if<RelayedChunks>(&chunks_)) {
      return relayed->index(node, chunk) != kNoSlot;
    }
    return std::get<WholeChunks>(chunks_).index(node, chunk) != kNoSlot;
  }
  // The node that gets the result of a chunk, which may be the owner itself, or kEveryNode, in the
  // end.
  std::uint32_t receiver(std::uint32_t chunk) const noexcept {
    if (receivers_ == plan::Ranks::every) return kEveryNode;
    if (receivers_ == plan::Ranks::root) return root_node_;
    const auto* const pairs = std::get_if<PairChunks>(&chunks_);
    return group_->node_of_rank(pairs != nullptr ? pairs->receiver(chunk)
                                                 : std::get<ShareChunks>(chunks_).sharer(chunk));
  }

  bool goes_to(std::uint32_t node, std::uint32_t chunk) const noexcept {
    const std::uint32_t one = receiver(chunk);
    return one == kEveryNode || one == node;
  }

  // Whether nodes that own chunks send on what the root has sent them.
  bool is_sent_on() const noexcept {
    const auto* const relayed = std::get_if<RelayedChunks>(&chunks_);
    return relayed != nullptr && relayed->root_sends();
  }
  // Whether `from`, which owns a chunk or is the root that has it, sends it to `to`, another node.
  bool sends(std::uint32_t from, std::uint32_t to, std::uint32_t chunk) const noexcept {
    if (!is_sent_on()) return goes_to(to, chunk);
    if (from == root_node_) return std::get<RelayedChunks>(chunks_).owner(chunk) == to;
    return to != root_node_;
  }

  // Whether the result goes from `owner` to another node.
  bool leaves(std::uint32_t owner, std::uint32_t chunk) const noexcept {
    const std::uint32_t one = receiver(chunk);
    return one == kEveryNode ? group_->nodes() > 1 : one != owner;
  }

  // Its elements, of those of the op; of pairs, in the input of the rank that has them.
  std::uint64_t begin(std::uint32_t chunk) const noexcept {
    return std::visit([&](const auto& chunks) { return chunks.begin(chunk); }, chunks_);
  }
  // The same in the outputs of the ranks that get them.
  std::uint64_t result_begin(std::uint32_t chunk) const noexcept {
    const auto* const pairs = std::get_if<PairChunks>(&chunks_);
    return pairs != nullptr ? pairs->result_begin(chunk) : begin(chunk);
  }
  // The op's elements that come up to the end of a chunk, where they come share by share from that
  // of the rank before `rank` downwards, its own last. REQUIRES: ranks have shares.
  std::uint64_t end_of_shares_down(std::uint32_t rank, std::uint32_t chunk) const noexcept {
    const ShareChunks& shares = std::get<ShareChunks>(chunks_);
    const std::uint32_t sharer = shares.sharer(chunk);
    const std::uint64_t after = shares.share_begin(sharer + 1);
    const std::uint64_t all = shares.share_begin(group_->group_size());
    const std::uint64_t before = shares.share_begin(rank) + (sharer < rank ? 0 : all) - after;
    return before + shares.begin(chunk) + shares.size(chunk) - shares.share_begin(sharer);
  }
  std::uint32_t size(std::uint32_t chunk) const noexcept {
    return std::visit([&](const auto& chunks) { return chunks.size(chunk); }, chunks_);
  }

 private:
  std::variant<WholeChunks, ShareChunks, PairChunks, RelayedChunks> chunks_;
  const GroupShape* group_ = nullptr;
  plan::Ranks receivers_ = plan::Ranks::nobody;
  bool root_owns_ = false;
  std::uint32_t root_node_ = 0;
};

}  // namespace tern::collective
