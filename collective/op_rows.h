#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collective/slots.h"

namespace tern::collective {

// Of some ops a value for each node. An op has a row from its first write until clear(), and there
// is room for as many rows as were ever needed at once: of the slots that ops may take, which are
// max_ops_in_flight for each node, few are in use where nodes are at about the same op. Values are
// `none` where nothing was written. References end with the next write of an op without a row.
template <typename Value>
class OpRows {
 public:
  // `rows`: room from the beginning, so that a group of usual ops allocates nothing later.
  OpRows(std::size_t op_slots, std::uint32_t nodes, std::uint32_t rows, const Value& none = {})
      : nodes_(nodes), none_(none), row_of_(op_slots, kNoSlot) {
    grow(rows);
  }

  // The op's row, by node.
  std::span<Value> write(OpId op) {
    std::uint32_t& row = row_of_[op];
    if (row == kNoSlot) {
      if (free_.empty()) grow(2 * rows());
      row = free_.back();
      free_.pop_back();
    }
    return {&values_[std::size_t{row} * nodes_], nodes_};
  }
  Value& write(OpId op, std::uint32_t node) { return write(op)[node]; }
  // Empty: nothing was written of the op.
  std::span<const Value> read(OpId op) const noexcept {
    const std::uint32_t row = row_of_[op];
    if (row == kNoSlot) return {};
    return {&values_[std::size_t{row} * nodes_], nodes_};
  }
  const Value& read(OpId op, std::uint32_t node) const noexcept {
    const std::uint32_t row = row_of_[op];
    return row == kNoSlot ? none_ : values_[std::size_t{row} * nodes_ + node];
  }
  void clear(OpId op) noexcept {
    std::uint32_t& row = row_of_[op];
    if (row == kNoSlot) return;
    std::fill_n(values_.begin() + static_cast<std::ptrdiff_t>(std::size_t{row} * nodes_), nodes_,
                none_);
    free_.push_back(row);
    row = kNoSlot;
  }

  std::uint32_t rows() const noexcept {
    return static_cast<std::uint32_t>(values_.size() / nodes_);
  }

 private:
  void grow(std::uint32_t rows) {
    const std::uint32_t before = this->rows();
    rows = std::max(rows, before + 1);
    values_.resize(std::size_t{rows} * nodes_, none_);
    free_.reserve(rows);
    for (std::uint32_t row = rows; row > before; --row) free_.push_back(row - 1);
  }

  std::uint32_t nodes_;
  Value none_;
  std::vector<std::uint32_t> row_of_;  // by op slot
  std::vector<Value> values_;          // row x node
  std::vector<std::uint32_t> free_;
};

}  // namespace tern::collective
