#pragma once

#include <cstdint>

#include "collective/group_shape.h"
#include "collective/slots.h"
#include "collective/whole_chunks.h"
#include "shm/sharding.h"

namespace tern::collective {

// The chunks of an op that is cut as a whole, on one lane, where every node but the root's owns
// some. They are those that nodes would own in turn; the chunk that would be the root's is in each
// round another node's. A node's own come first, then those that it has of the root's.
class RelayedChunks {
 public:
  RelayedChunks() = default;
  // `root_sends`: the root has all chunks, and sends each to its owner.
  RelayedChunks(const shm::Sharding& sharding, const GroupShape& group, std::uint32_t root_node,
                bool root_sends) noexcept
      : in_turn_(sharding, group.lane, kNoSlot), root_node_(root_node), root_sends_(root_sends) {}

  // How many chunks `node` owns here, or the root sends.
  std::uint32_t owned(std::uint32_t node) const noexcept {
    if (node == root_node_) return root_sends_ ? at_root().owned(node) : 0;
    return in_turn_.owned(node) + count(of_root(node));
  }

  // The number of the index-th of these. REQUIRES: index < owned(node).
  std::uint32_t chunk(std::uint32_t node, std::uint32_t index) const noexcept {
    if (node == root_node_) return at_root().chunk(node, index);
    const std::uint32_t own = in_turn_.owned(node);
    if (index < own) return in_turn_.chunk(node, index);
    const Steps steps = of_root(node);
    return in_turn_.chunk(root_node_, steps.first + (index - own) * steps.step);
  }

  // The inverse, or kNoSlot if `node` neither owns nor sends the chunk here.
  std::uint32_t index(std::uint32_t node, std::uint32_t chunk) const noexcept {
    if (node == root_node_) return root_sends_ ? at_root().index(node, chunk) : kNoSlot;
    if (const std::uint32_t own = in_turn_.index(node, chunk); own != kNoSlot) return own;
    const std::uint32_t of_roots = in_turn_.index(root_node_, chunk);
    const Steps steps = of_root(node);
    if (of_roots == kNoSlot || of_roots < steps.first) return kNoSlot;
    if ((of_roots - steps.first) % steps.step != 0) return kNoSlot;
    return in_turn_.owned(node) + (of_roots - steps.first) / steps.step;
  }

  // Of a chunk on whatever lane.
  std::uint32_t owner(std::uint32_t chunk) const noexcept {
    const std::uint32_t in_turn = in_turn_.sharding().owner(chunk);
    if (in_turn != root_node_) return in_turn;
    const std::uint32_t turn = chunk / nodes() % (nodes() - 1);
    return (root_node_ + 1 + turn) % nodes();
  }

  bool root_sends() const noexcept { return root_sends_; }
  std::uint64_t begin(std::uint32_t chunk) const noexcept { return in_turn_.begin(chunk); }
  std::uint32_t size(std::uint32_t chunk) const noexcept { return in_turn_.size(chunk); }

 private:
  // Every op in flight has a place for this class, so it keeps no second one.
  WholeChunks at_root() const noexcept { return in_turn_.owned_by(root_node_); }

  std::uint32_t nodes() const noexcept { return in_turn_.sharding().columns; }

  // Positions among the chunks that would be the root's here.
  struct Steps {
    std::uint32_t first = 0;
    std::uint32_t step = 1;
  };

  // Those that `node` owns. After as many as there are other nodes their owners repeat, or earlier
  // where a lane does not see every round.
  Steps of_root(std::uint32_t node) const noexcept {
    const std::uint32_t all = in_turn_.owned(root_node_);
    Steps steps{all, 1};
    for (std::uint32_t i = 0; i < all && i < 2 * (nodes() - 1); ++i) {
      if (owner(in_turn_.chunk(root_node_, i)) != node) continue;
      if (steps.first != all) {
        steps.step = i - steps.first;
        return steps;
      }
      steps = {i, all};
    }
    return steps;
  }

  std::uint32_t count(const Steps& steps) const noexcept {
    const std::uint32_t all = in_turn_.owned(root_node_);
    return steps.first < all ? (all - 1 - steps.first) / steps.step + 1 : 0;
  }

  WholeChunks in_turn_;
  std::uint32_t root_node_ = 0;
  bool root_sends_ = false;
};

}  // namespace tern::collective
