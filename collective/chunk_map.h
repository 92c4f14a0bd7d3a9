#pragma once

#include <cstdint>

#include "collective/slots.h"
#include "plan/plan.h"
#include "shm/sharding.h"

namespace tern::collective {

// Which chunks of an op a node owns on one lane, in the order in which they are worked on.
// Ownership is the plan's.
class ChunkMap {
 public:
  ChunkMap() = default;
  ChunkMap(const shm::Sharding& sharding, std::uint32_t lane, plan::Ownership ownership,
           std::uint32_t root_node) noexcept
      : sharding_(sharding), ownership_(ownership), root_node_(root_node) {
    const std::uint64_t rounds_in_op = (sharding.chunk_count + sharding.nodes - 1) / sharding.nodes;
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
    if (ownership_ == plan::Ownership::root_node) {
      if (node != root_node_) return 0;
      const std::uint64_t all = rounds_ * sharding_.nodes;
      return static_cast<std::uint32_t>(all - missing_in_last_round());
    }
    const bool last_is_mine = last_round_is_here() && slot_of(node) >= chunks_in_last_round();
    return static_cast<std::uint32_t>(rounds_ - (last_is_mine ? 1 : 0));
  }

  std::uint32_t owned_by_all() const noexcept {
    std::uint32_t sum = 0;
    for (std::uint32_t node = 0; node < sharding_.nodes; ++node) sum += owned(node);
    return sum;
  }

  // The number of the index-th chunk that `node` owns here. REQUIRES: index < owned(node).
  std::uint32_t chunk(std::uint32_t node, std::uint32_t index) const noexcept {
    if (ownership_ == plan::Ownership::root_node) {
      const std::uint64_t round = first_round_ + index / sharding_.nodes * round_step_;
      return static_cast<std::uint32_t>(round * sharding_.nodes + index % sharding_.nodes);
    }
    return static_cast<std::uint32_t>((first_round_ + index * round_step_) * sharding_.nodes +
                                      slot_of(node));
  }

  // The inverse: the position of `chunk` among those of `node`, or kNoSlot if it is not one of
  // them.
  std::uint32_t index(std::uint32_t node, std::uint32_t chunk_number) const noexcept {
    if (chunk_number >= sharding_.chunk_count) return kNoSlot;
    const std::uint64_t round = chunk_number / sharding_.nodes;
    const std::uint64_t slot = chunk_number % sharding_.nodes;
    if (round < first_round_ || (round - first_round_) % round_step_ != 0 || rounds_ == 0)
      return kNoSlot;
    const std::uint64_t local_round = (round - first_round_) / round_step_;
    if (local_round >= rounds_) return kNoSlot;
    if (ownership_ == plan::Ownership::root_node) {
      if (node != root_node_) return kNoSlot;
      return static_cast<std::uint32_t>(local_round * sharding_.nodes + slot);
    }
    return slot == slot_of(node) ? static_cast<std::uint32_t>(local_round) : kNoSlot;
  }

  const shm::Sharding& sharding() const noexcept { return sharding_; }

 private:
  // The position within a round of the chunk that node owns: (slot + spread) % nodes == node.
  std::uint64_t slot_of(std::uint32_t node) const noexcept {
    return (node + sharding_.nodes - sharding_.spread % sharding_.nodes) % sharding_.nodes;
  }
  std::uint64_t chunks_in_last_round() const noexcept {
    const std::uint64_t rest = sharding_.chunk_count % sharding_.nodes;
    return rest == 0 ? sharding_.nodes : rest;
  }
  bool last_round_is_here() const noexcept {
    const std::uint64_t last = (sharding_.chunk_count + sharding_.nodes - 1) / sharding_.nodes - 1;
    return first_round_ + (rounds_ - 1) * round_step_ == last;
  }
  std::uint64_t missing_in_last_round() const noexcept {
    return last_round_is_here() ? sharding_.nodes - chunks_in_last_round() : 0;
  }

  shm::Sharding sharding_{};
  plan::Ownership ownership_ = plan::Ownership::striped;
  std::uint32_t root_node_ = 0;
  std::uint64_t first_round_ = 0;
  std::uint64_t round_step_ = 1;
  std::uint64_t rounds_ = 0;
};

}  // namespace tern::collective
