#pragma once

#include <cstdint>
#include <span>

#include "base/errc.h"
#include "collective/group_shape.h"
#include "daemon/lane/operand.h"
#include "daemon/tensor/tensor_state.h"
#include "plan/plan.h"
#include "shm/layout.h"
#include "shm/sharding.h"

namespace tern::daemon {

// Where an entry was submitted, and by whom.
struct EntryPlace {
  const collective::GroupShape& group;
  std::uint32_t ranks = 1;  // of the group
  std::uint32_t rank = 0;   // who submits
  std::uint64_t arena_bytes = 0;
  const TensorState* tensor = nullptr;  // of this id in this group; null: there is none
  // Of the ranks, a copy that the client cannot change; empty: the entry has none.
  std::span<const std::uint64_t> counts{};
  // That the entry names beside the arena; null: there is none of that number.
  const Region* input = nullptr;
  const Region* output = nullptr;
};

// A sound entry's plan, or what is wrong with the entry.
struct CheckedEntry {
  const plan::Plan* plan = nullptr;
  std::uint32_t lanes = 0;  // that have a chunk of the op, as bits
  Errc code = Errc::ok;
  const char* problem = nullptr;
  plan::Extents extents{};  // of the rank that submits
};

// Here alone a number becomes a plan. `entry` is foreign, and a copy that its owner cannot change.
CheckedEntry check_entry(const shm::SubmitEntry& entry, const EntryPlace& place);

}  // namespace tern::daemon
