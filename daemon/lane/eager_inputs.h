#pragma once

// The values that came with announcements: a slab for each op and node, of the group's EagerRoom.

#include <cstdint>
#include <span>

#include "codec/codec.h"
#include "collective/group_shape.h"
#include "collective/op.h"
#include "collective/op_rows.h"
#include "collective/slots.h"
#include "daemon/lane/slab_pool.h"
#include "wire/block.h"

namespace tern::daemon {

class EagerInputs {
 public:
  // `pools` of each node, which outlive this.
  EagerInputs(const collective::GroupShape& shape, std::uint32_t op_slots,
              std::span<SlabPool> pools)
      : values_(op_slots, shape.nodes(), shape.max_ops_in_flight, Values{}), pools_(pools) {}

  // What a node may send with an announcement.
  static constexpr std::size_t most_bytes(const collective::GroupShape& shape) noexcept {
    return most_bytes(shape.eager_form, shape.eager_bytes);
  }
  static constexpr std::size_t most_bytes(collective::EagerForm form,
                                          std::uint64_t eager_bytes) noexcept {
    return eager_bytes + (form >= collective::EagerForm::blocks ? kBlockOverhead : 0);
  }

  // The most that another node takes of a contribution: a longer frame would break the protocol.
  static constexpr std::size_t most_contribution(const collective::Op& op,
                                                 const collective::GroupShape& shape) noexcept {
    return op.is_eager() || op.announces_chunks() ? most_bytes(shape)
                                                  : shape.chunk_bytes + wire::kBlockHeaderBytes;
  }

  // Whether blocks of a recipe that loses something have room there, whatever the values.
  static bool fits(const codec::Recipe& recipe, std::uint32_t elements,
                   const collective::GroupShape& shape) noexcept {
    return !codec::is_lossy(recipe) ||
           wire::kBlockHeaderBytes + codec::encode_bound(recipe, elements) <= most_bytes(shape);
  }

  // Room for values that a node sends; kNone: it has more of them under way than a group allows.
  std::uint32_t take(std::uint32_t node) noexcept { return pools_[node].take(); }
  void give(std::uint32_t node, std::uint32_t slab) noexcept { pools_[node].give(slab); }
  Operand operand(std::uint32_t node, std::uint32_t slab) const noexcept {
    return pools_[node].operand(slab);
  }

  struct Values {
    std::uint32_t slab = SlabPool::kNone;
    std::uint32_t bytes = 0;
    bool is_block = false;  // with its header; else elements in their own type
  };
  // From now on the slab holds what the node contributes to the op.
  void keep(collective::OpId op, std::uint32_t node, const Values& values) {
    values_.write(op, node) = values;
  }
  // Empty: nothing is kept of the node.
  Operand kept(collective::OpId op, std::uint32_t node) const noexcept {
    const Values& values = values_.read(op, node);
    if (values.slab == SlabPool::kNone) return {};
    return pools_[node].operand(values.slab).slice(0, values.bytes);
  }
  bool keeps_block(collective::OpId op, std::uint32_t node) const noexcept {
    return values_.read(op, node).is_block;
  }
  void release(collective::OpId op) noexcept {
    std::uint32_t node = 0;
    for (const Values& values : values_.read(op)) {
      if (values.slab != SlabPool::kNone) pools_[node].give(values.slab);
      ++node;
    }
    values_.clear(op);
  }

 private:
  // A block's header, and what codebooks and tables add where elements do not get shorter.
  static constexpr std::size_t kBlockOverhead = 2048;

  collective::OpRows<Values> values_;
  std::span<SlabPool> pools_;  // by node
};

}  // namespace tern::daemon
