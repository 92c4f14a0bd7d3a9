#pragma once

#include <cstdint>

#include "collective/slots.h"
#include "shm/sharding.h"

namespace tern::collective {

// The chunks of an op that is cut as a whole, on one lane: each is owned by one node, by all in
// turn or by the root's alone.
class WholeChunks {
 public:
  WholeChunks() = default;
  // `root_node` kNoSlot: nodes own chunks in turn.
  WholeChunks(const shm::Sharding& sharding, std::uint32_t lane, std::uint32_t root_node) noexcept
      : sharding_(sharding), root_node_(root_node) {
    const std::uint64_t rounds_in_op = sharding.rounds();
    if (sharding.one_lane) {
      first_round_ = 0;
      round_step_ = 1;
      rounds_ = lane == sharding.lane(0) ? rounds_in_op : 0;
    } else {
      first_round_ = (lane + sharding.lanes - sharding.lane(0)) % sharding.lanes;
      round_step_ = sharding.lanes;
      rounds_ = first_round_ < rounds_in_op
                    ? (rounds_in_op - first_round_ + sharding.lanes - 1) / sharding.lanes
                    : 0;
    }
  }

  // How many chunks `node` owns on this lane.
  std::uint32_t owned(std::uint32_t node) const noexcept {
    if (rounds_ == 0) return 0;
    if (root_node_ != kNoSlot) {
      if (node != root_node_) return 0;
      const std::uint64_t all = rounds_ * sharding_.columns;
      return static_cast<std::uint32_t>(all - missing_in_last_round());
    }
    const bool last_is_mine = last_round_is_here() && slot_of(node) >= chunks_in_last_round();
    return static_cast<std::uint32_t>(rounds_ - (last_is_mine ? 1 : 0));
  }

  // The number of the index-th chunk that `node` owns here. REQUIRES: index < owned(node).
  std::uint32_t chunk(std::uint32_t node, std::uint32_t index) const noexcept {
    if (root_node_ != kNoSlot) {
      const std::uint64_t round = first_round_ + index / sharding_.columns * round_step_;
      return static_cast<std::uint32_t>(round * sharding_.columns + index % sharding_.columns);
    }
    return static_cast<std::uint32_t>((first_round_ + index * round_step_) * sharding_.columns +
                                      slot_of(node));
  }

  // The inverse: the position of `chunk` among those of `node`, or kNoSlot if it is not one of
  // them.
  std::uint32_t index(std::uint32_t node, std::uint32_t chunk_number) const noexcept {
    if (chunk_number >= sharding_.chunk_count) return kNoSlot;
    const std::uint64_t round = chunk_number / sharding_.columns;
    const std::uint64_t slot = chunk_number % sharding_.columns;
    if (round < first_round_ || (round - first_round_) % round_step_ != 0 || rounds_ == 0)
      return kNoSlot;
    const std::uint64_t local_round = (round - first_round_) / round_step_;
    if (local_round >= rounds_) return kNoSlot;
    if (root_node_ != kNoSlot) {
      if (node != root_node_) return kNoSlot;
      return static_cast<std::uint32_t>(local_round * sharding_.columns + slot);
    }
    return slot == slot_of(node) ? static_cast<std::uint32_t>(local_round) : kNoSlot;
  }

  // The same chunks, all of this node.
  WholeChunks owned_by(std::uint32_t root_node) const noexcept {
    WholeChunks other = *this;
    other.root_node_ = root_node;
    return other;
  }

  const shm::Sharding& sharding() const noexcept { return sharding_; }
  std::uint64_t begin(std::uint32_t chunk) const noexcept { return sharding_.chunk_begin(chunk); }
  std::uint32_t size(std::uint32_t chunk) const noexcept {
    return static_cast<std::uint32_t>(sharding_.chunk_size(chunk));
  }

 private:
  // The position within a round of the chunk that node owns: (slot + spread) % nodes == node.
  std::uint64_t slot_of(std::uint32_t node) const noexcept {
    return (node + sharding_.columns - sharding_.spread % sharding_.columns) % sharding_.columns;
  }
  std::uint64_t chunks_in_last_round() const noexcept {
    const std::uint64_t rest = sharding_.chunk_count % sharding_.columns;
    return rest == 0 ? sharding_.columns : rest;
  }
  bool last_round_is_here() const noexcept {
    const std::uint64_t last =
        (sharding_.chunk_count + sharding_.columns - 1) / sharding_.columns - 1;
    return first_round_ + (rounds_ - 1) * round_step_ == last;
  }
  std::uint64_t missing_in_last_round() const noexcept {
    return last_round_is_here() ? sharding_.columns - chunks_in_last_round() : 0;
  }

  shm::Sharding sharding_{};
  std::uint32_t root_node_ = kNoSlot;
  std::uint64_t first_round_ = 0;
  std::uint64_t round_step_ = 1;
  std::uint64_t rounds_ = 0;
};

}  // namespace tern::collective
