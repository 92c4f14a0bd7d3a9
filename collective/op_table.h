#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "collective/op.h"
#include "collective/op_rows.h"

namespace tern::collective {

// The ops that live on a node, by slot and by key, and how far each tensor has been used: an op
// that all local ranks have submitted and that is not here any more has ended.
class OpTable {
 public:
  // What is heard of ops has room for `rows` of them from the beginning.
  OpTable(std::size_t slots, std::uint32_t nodes, std::uint32_t rows);

  // Allocates only for a tensor that is new. kNoSlot: all are in use.
  OpId create(const OpKey& key);
  // kNoSlot: the op has ended here, its tensor has been dropped, or all are in use.
  OpId find_or_create(const OpKey& key);
  // Late frames will not bring back an op that a local rank has submitted.
  void remove(OpId id);

  Op& operator[](OpId id) noexcept { return ops_[id]; }
  const Op& operator[](OpId id) const noexcept { return ops_[id]; }
  std::uint32_t slots() const noexcept { return static_cast<std::uint32_t>(ops_.size()); }
  bool in_use(OpId id) const noexcept { return used_[id]; }
  std::uint32_t live() const noexcept { return live_; }
  // Of which something is kept.
  std::size_t tensors() const noexcept { return std::max(known_.size(), by_tensor_.size()); }
  // An op that has failed stays for those who may still ask for it, until it is recalled.
  void remember(OpId id) noexcept;
  void recall(OpId id) noexcept;
  std::uint32_t remembered() const noexcept { return remembered_; }
  // Nothing is under way.
  bool idle() const noexcept { return live_ == remembered_; }
  OpId find(const OpKey& key) const noexcept;

  // All local ranks have submitted the op of this key.
  void submitted_by_all(const OpKey& key);
  // They had, and it is not live: it has ended here.
  bool superseded(const OpKey& key) const noexcept;
  // Its local ranks have released it: no use of it begins any more.
  void drop_tensor(std::uint64_t tensor);
  bool is_dropped(std::uint64_t tensor) const noexcept;
  // Its ops that live.
  std::span<const OpId> uses(std::uint64_t tensor) const noexcept;
  // Whether an earlier use of the op's tensor lives and has not failed.
  bool waits_for_earlier_use(OpId id) const noexcept;
  // Whether an earlier use of its tensor runs here, until whose end it cannot be announced.
  bool waits_for_running_use(OpId id) const noexcept;
  // The earliest use of a tensor that lives and has not failed, or kNoSlot.
  OpId earliest_use(std::uint64_t tensor) const noexcept;

  // Of the ops of which another node says something.
  struct Heard {
    std::uint64_t told = 0;        // ranks of the node that have submitted the op
    std::uint32_t counts_crc = 0;  // of the counts that it has announced
  };
  Heard& hear(OpId id, std::uint32_t node) { return heard_.write(id, node); }
  const Heard& heard(OpId id, std::uint32_t node) const noexcept { return heard_.read(id, node); }

 private:
  void forget_if_unused(std::uint64_t tensor);

  std::vector<Op> ops_;
  std::vector<bool> used_;
  std::vector<OpId> free_;
  OpRows<Heard> heard_;
  std::unordered_map<std::uint64_t, std::vector<OpId>> by_tensor_;  // live ops of each tensor
  struct Known {
    std::uint64_t submitted_below = 0;  // these uses all local ranks have submitted
    bool is_dropped = false;
  };
  std::unordered_map<std::uint64_t, Known> known_;  // of each tensor
  // The last tensors that were dropped, for frames that are late; a ring.
  std::vector<std::uint64_t> dropped_;
  std::size_t oldest_dropped_ = 0;
  std::uint64_t next_order_ = 0;
  std::uint32_t live_ = 0;
  std::uint32_t remembered_ = 0;
};

}  // namespace tern::collective
