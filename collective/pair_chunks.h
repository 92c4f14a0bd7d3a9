#pragma once

#include <cstdint>

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
  // time. REQUIRES: node is this one, index < owned(node).
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
  std::uint32_t ranks_ = 1;
  std::uint32_t owned_ = 0;
  std::uint32_t turns_ = 0;  // chunks of the pair that has most
  std::uint64_t first_round_ = 0;
};

}  // namespace tern::collective
