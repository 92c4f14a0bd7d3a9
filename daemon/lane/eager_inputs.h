#pragma once

// The values that came with announcements: a slab for each op and node.

#include <cstdint>
#include <memory>
#include <vector>

#include "collective/group_shape.h"
#include "collective/op_rows.h"
#include "collective/slots.h"
#include "daemon/lane/slab_pool.h"

namespace tern::daemon {

class EagerInputs {
 public:
  EagerInputs(const collective::GroupShape& shape, std::uint32_t op_slots)
      : nodes_(shape.nodes()), slabs_(op_slots, nodes_, shape.max_ops_in_flight, SlabPool::kNone) {
    // A peer may have max_ops_in_flight eager ops of its own in flight and as many that it has
    // completed while this node still waits for a third node.
    const std::uint32_t count = shape.eager_bytes > 0 ? 2 * shape.max_ops_in_flight : 0;
    for (std::uint32_t node = 0; node < nodes_; ++node) {
      pools_.push_back(std::make_unique<SlabPool>(count, shape.eager_bytes));
    }
  }

  // Room for values that a node sends; kNone: it has more of them under way than a group allows.
  std::uint32_t take(std::uint32_t node) noexcept { return pools_[node]->take(); }
  void give(std::uint32_t node, std::uint32_t slab) noexcept { pools_[node]->give(slab); }
  Operand operand(std::uint32_t node, std::uint32_t slab) const noexcept {
    return pools_[node]->operand(slab);
  }

  // From now on the slab holds what the node contributes to the op.
  void keep(collective::OpId op, std::uint32_t node, std::uint32_t slab) {
    slabs_.write(op, node) = slab;
  }
  // Empty: nothing is kept of the node.
  Operand kept(collective::OpId op, std::uint32_t node) const noexcept {
    const std::uint32_t slab = slabs_.read(op, node);
    return slab == SlabPool::kNone ? Operand{} : pools_[node]->operand(slab);
  }
  void release(collective::OpId op) noexcept {
    std::uint32_t node = 0;
    for (const std::uint32_t slab : slabs_.read(op)) {
      if (slab != SlabPool::kNone) pools_[node]->give(slab);
      ++node;
    }
    slabs_.clear(op);
  }
  void drop_pages() noexcept {
    for (auto& pool : pools_) pool->drop_pages();
  }

 private:
  std::uint32_t nodes_;
  collective::OpRows<std::uint32_t> slabs_;
  std::vector<std::unique_ptr<SlabPool>> pools_;  // by node
};

}  // namespace tern::daemon
