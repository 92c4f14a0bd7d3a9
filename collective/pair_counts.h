#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "collective/group_shape.h"

namespace tern::collective {

// Of an op in which each rank has elements of its own number for each: what the ranks of this node
// have said. The node that sends and the one that receives compare what they know of the same pairs
// by a checksum.
class PairCounts {
 public:
  explicit PairCounts(const GroupShape& group);
  void clear();

  // What a rank of this node has for each rank, and then what it gets from each. REQUIRES: neither
  // adds up to more than an op may have.
  void say(std::uint32_t local_rank, std::span<const std::uint64_t> counts);

  // For and from ranks of the group, of a rank of this node by its index here.
  std::uint64_t sent(std::uint32_t local_rank, std::uint32_t to) const noexcept;
  std::uint64_t received(std::uint32_t local_rank, std::uint32_t from) const noexcept;
  // Elements that lie before them in its input (output).
  std::uint64_t sent_begin(std::uint32_t local_rank, std::uint32_t to) const noexcept;
  std::uint64_t received_begin(std::uint32_t local_rank, std::uint32_t from) const noexcept;

  // Over what ranks of this node have for ranks of that one, and get from them; never 0.
  std::uint32_t sent_crc(std::uint32_t node) const noexcept;
  std::uint32_t received_crc(std::uint32_t node) const noexcept;

 private:
  std::uint64_t* row(std::uint32_t local_rank, bool received) noexcept {
    return &begins_[(std::size_t{local_rank} * 2 + (received ? 1 : 0)) * (ranks_ + 1)];
  }
  const std::uint64_t* row(std::uint32_t local_rank, bool received) const noexcept {
    return &begins_[(std::size_t{local_rank} * 2 + (received ? 1 : 0)) * (ranks_ + 1)];
  }

  const GroupShape* group_;
  std::uint32_t ranks_;
  std::vector<std::uint64_t> begins_;  // by local rank: of what is sent, then of what is received
};

// One for each op in flight that needs one; kept for the next.
class PairTables {
 public:
  explicit PairTables(const GroupShape& group) : group_(&group) {}

  PairCounts* take();
  // Null is ignored.
  void give(PairCounts* counts);

 private:
  const GroupShape* group_;
  std::vector<std::unique_ptr<PairCounts>> tables_;
  std::vector<PairCounts*> free_;
};

}  // namespace tern::collective
