#include "collective/share_chunks.h"

#include <algorithm>

namespace tern::collective {

ShareChunks::ShareChunks(const shm::Sharding& sharding, const GroupShape& group,
                         std::uint32_t root_node, const std::uint64_t* begins) noexcept
    : sharding_(sharding), group_(&group), root_node_(root_node), begins_(begins) {
  if (!sharding.one_lane) {
    first_round_ = (group.lane + sharding.lanes - sharding.lane(0)) % sharding.lanes;
    round_step_ = sharding.lanes;
  } else if (group.lane == sharding.lane(0)) {
    round_step_ = 1;
  }
}

std::uint64_t ShareChunks::share_begin(std::uint32_t rank) const noexcept {
  return begins_ != nullptr ? begins_[rank] : rank * (sharding_.count / sharding_.columns);
}

std::uint64_t ShareChunks::share_size(std::uint32_t rank) const noexcept {
  return begins_ != nullptr ? begins_[rank + 1] - begins_[rank]
                            : sharding_.count / sharding_.columns;
}

std::uint32_t ShareChunks::chunks_of(std::uint32_t rank) const noexcept {
  if (round_step_ == 0) return 0;
  const std::uint64_t elements = sharding_.chunk_elements;
  const std::uint64_t rounds = (share_size(rank) + elements - 1) / elements;
  if (rounds <= first_round_) return 0;
  return static_cast<std::uint32_t>((rounds - first_round_ - 1) / round_step_ + 1);
}

std::uint32_t ShareChunks::shares(std::uint32_t node) const noexcept {
  if (owns_all(node)) return sharding_.columns;
  return root_node_ == kNoSlot ? static_cast<std::uint32_t>(group_->ranks[node].size()) : 0;
}

std::uint32_t ShareChunks::share(std::uint32_t node, std::uint32_t position) const noexcept {
  return owns_all(node) ? position : group_->ranks[node][position];
}

std::uint32_t ShareChunks::owned(std::uint32_t node) const noexcept {
  std::uint32_t sum = 0;
  for (std::uint32_t i = 0; i < shares(node); ++i) sum += chunks_of(share(node, i));
  return sum;
}

std::uint32_t ShareChunks::in_shares_of(std::uint32_t node) const noexcept {
  std::uint32_t sum = 0;
  for (const std::uint32_t rank : group_->ranks[node]) sum += chunks_of(rank);
  return sum;
}

std::uint32_t ShareChunks::chunk(std::uint32_t node, std::uint32_t index) const noexcept {
  std::uint32_t position = 0;
  std::uint32_t rank = share(node, 0);
  for (std::uint32_t here = chunks_of(rank); index >= here; here = chunks_of(rank)) {
    index -= here;
    rank = share(node, ++position);
  }
  const std::uint64_t round = first_round_ + index * round_step_;
  return static_cast<std::uint32_t>(round * sharding_.columns + rank);
}

std::uint32_t ShareChunks::index(std::uint32_t node, std::uint32_t chunk) const noexcept {
  if (chunk >= sharding_.chunk_count || round_step_ == 0) return kNoSlot;
  const std::uint64_t round = chunk / sharding_.columns;
  if (round < first_round_ || (round - first_round_) % round_step_ != 0) return kNoSlot;
  const std::uint64_t in_share = (round - first_round_) / round_step_;
  const std::uint32_t rank = sharer(chunk);
  if (in_share >= chunks_of(rank)) return kNoSlot;
  std::uint32_t before = 0;
  for (std::uint32_t i = 0; i < shares(node); ++i) {
    if (share(node, i) == rank) return before + static_cast<std::uint32_t>(in_share);
    before += chunks_of(share(node, i));
  }
  return kNoSlot;
}

std::uint64_t ShareChunks::before(std::uint32_t chunk) const noexcept {
  return chunk / sharding_.columns * sharding_.chunk_elements_of(share_size(sharer(chunk)));
}

std::uint64_t ShareChunks::begin(std::uint32_t chunk) const noexcept {
  return share_begin(sharer(chunk)) + before(chunk);
}

std::uint32_t ShareChunks::size(std::uint32_t chunk) const noexcept {
  const std::uint64_t share = share_size(sharer(chunk));
  return static_cast<std::uint32_t>(
      std::min(sharding_.chunk_elements_of(share), share - before(chunk)));
}

}  // namespace tern::collective
