#pragma once

#include <cstdint>

#include "collective/group_shape.h"
#include "collective/slots.h"
#include "shm/sharding.h"

namespace tern::collective {

// The chunks of an op whose ranks' shares are cut each by itself, on one lane. Chunk number
// `round * ranks + rank` is the one of that round in the share of `rank`.
class ShareChunks {
 public:
  ShareChunks() = default;
  // `root_node` kNoSlot: the node of a share's rank owns its chunks. `begins`: where the share of
  // each rank begins, and after them the op's end; null: the shares are equal. The group's shape
  // and `begins` outlive this.
  ShareChunks(const shm::Sharding& sharding, const GroupShape& group, std::uint32_t root_node,
              const std::uint64_t* begins) noexcept;

  // How many chunks `node` owns here.
  std::uint32_t owned(std::uint32_t node) const noexcept;
  // Those of the shares of its ranks, whoever owns them.
  std::uint32_t in_shares_of(std::uint32_t node) const noexcept;
  // The number of the index-th chunk that `node` owns here, share by share. REQUIRES: index <
  // owned(node).
  std::uint32_t chunk(std::uint32_t node, std::uint32_t index) const noexcept;
  // The inverse, or kNoSlot if `node` does not own the chunk here.
  std::uint32_t index(std::uint32_t node, std::uint32_t chunk) const noexcept;
  // Whether the share that a chunk of this number is in is as long, on whatever lane.
  bool has(std::uint32_t chunk) const noexcept { return before(chunk) < share_size(sharer(chunk)); }
  // The rank whose share the chunk is in.
  std::uint32_t sharer(std::uint32_t chunk) const noexcept { return chunk % sharding_.columns; }

  std::uint64_t begin(std::uint32_t chunk) const noexcept;
  std::uint32_t size(std::uint32_t chunk) const noexcept;
  // Of a rank, or after that of the last one.
  std::uint64_t share_begin(std::uint32_t rank) const noexcept;

 private:
  std::uint64_t share_size(std::uint32_t rank) const noexcept;
  std::uint32_t chunks_of(std::uint32_t rank) const noexcept;  // of its share, here
  std::uint64_t before(std::uint32_t chunk) const noexcept;    // elements of the share
  bool owns_all(std::uint32_t node) const noexcept { return node == root_node_; }
  // Ranks whose shares `node` owns, in order: how many, and the one at a position.
  std::uint32_t shares(std::uint32_t node) const noexcept;
  std::uint32_t share(std::uint32_t node, std::uint32_t position) const noexcept;

  shm::Sharding sharding_{};
  const GroupShape* group_ = nullptr;
  std::uint32_t root_node_ = kNoSlot;
  const std::uint64_t* begins_ = nullptr;
  std::uint64_t first_round_ = 0;
  std::uint64_t round_step_ = 0;  // 0: no round is here
};

}  // namespace tern::collective
