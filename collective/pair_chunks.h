#pragma once

#include <cstdint>
#include <vector>

#include "collective/group_shape.h"
#include "collective/pair_counts.h"
#include "collective/slots.h"
#include "shm/sharding.h"

namespace tern::collective {

// The chunks of an op in which each rank has elements for each, on one lane, as this node sees
// them: those that its ranks send, and those that they get. Chunk number `(round * ranks + from) *
// ranks + to` is the one of that round of what rank `from` has for rank `to`.
class PairChunks {
 public:
  PairChunks() = default;
  // `counts` null: all pairs have alike. The group's shape and `counts` outlive this.
  PairChunks(const shm::Sharding& sharding, const GroupShape& group,
             const PairCounts* counts) noexcept;

  // How many chunks ranks of this node have for all, those of this node with them. Of another node
  // 0: nobody here knows.
  std::uint32_t owned(std::uint32_t node) const noexcept {
    return node == group_->node ? owned_ : 0;
  }
  // How many chunks another node has for ranks of this one.
  std::uint32_t received_from(std::uint32_t node) const noexcept;
  // The number of the index-th chunk of this node: in turns, of which each has a chunk for every
  // node, from this one on. So links share what this node sends, and all do not send to one at a
  // time. From the last one that was asked for it walks to one near it, so that all of them in order
  // cost one walk through the turns; for one further away it looks through all pairs. REQUIRES: node
  // is this one, index < owned(node).
  std::uint32_t chunk(std::uint32_t node, std::uint32_t index) const noexcept;
  // Whether `node` has such a chunk for this one.
  bool has(std::uint32_t node, std::uint32_t chunk) const noexcept;
  std::uint32_t sender(std::uint32_t chunk) const noexcept { return chunk / ranks_ % ranks_; }
  std::uint32_t receiver(std::uint32_t chunk) const noexcept { return chunk % ranks_; }

  // Where its elements lie in the sender's input and in the receiver's output, by the numbers that
  // the plan gives these. REQUIRES: the rank is on this node.
  std::uint64_t begin(std::uint32_t chunk) const noexcept;
  std::uint64_t result_begin(std::uint32_t chunk) const noexcept;
  std::uint32_t size(std::uint32_t chunk) const noexcept;

 private:
  // A pair of ranks in one turn, which may have no chunk in it. Small, as there is one for each op
  // that a node may be ahead: a group has 64 nodes, and a node 64 ranks.
  struct Place {
    std::uint32_t index = 0;  // chunks of this node before it
    std::uint32_t turn = 0;
    std::uint8_t step = 0;          // from this node to the receiver's
    std::uint8_t to = 0, from = 0;  // among the ranks of their nodes
  };
  std::uint32_t sender_at(const Place& place) const noexcept {
    return group_->ranks[group_->node][place.from];
  }
  std::uint32_t receiver_at(const Place& place) const noexcept {
    return receivers_at(place)[place.to];
  }
  const std::vector<std::uint32_t>& receivers_at(const Place& place) const noexcept {
    return group_->ranks[(group_->node + place.step) % group_->nodes()];
  }
  bool has_chunk(const Place& place) const noexcept;
  std::uint32_t number_at(const Place& place) const noexcept;
  void go_on(Place& place) const noexcept;
  // REQUIRES: it is not the first.
  void go_back(Place& place) const noexcept;

  // kNoSlot: the rank is on another node.
  std::uint32_t local(std::uint32_t rank) const noexcept;
  std::uint64_t elements(std::uint32_t from, std::uint32_t to) const noexcept;
  std::uint64_t before(std::uint32_t chunk) const noexcept {
    const std::uint64_t block = elements(sender(chunk), receiver(chunk));
    return chunk / sharding_.columns * sharding_.chunk_elements_of(block);
  }
  std::uint32_t pairs_here() const noexcept {  // of which this node has the senders
    return ranks_ * group_->local_ranks();
  }
  std::uint32_t turn_of(std::uint32_t index) const noexcept;
  // Chunks of this node in the turns before this one.
  std::uint32_t before_turn(std::uint32_t turn) const noexcept;
  // How many chunks of so many elements are on this lane.
  std::uint32_t chunks_in(std::uint64_t elements) const noexcept;

  shm::Sharding sharding_{};
  const GroupShape* group_ = nullptr;
  const PairCounts* counts_ = nullptr;
  std::uint32_t owned_ = 0;
  std::uint32_t turns_ = 0;  // chunks of the pair that has most
  std::uint16_t ranks_ = 1;
  std::uint8_t first_round_ = 0;  // of as many as there are lanes
  mutable Place last_;            // that chunk() has found
};

}  // namespace tern::collective
