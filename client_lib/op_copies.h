#pragma once

#include <cstdint>
#include <mutex>

#include "client_lib/arena_memory.h"
#include "client_lib/op_table.h"
#include "client_lib/options.h"
#include "client_lib/submission_lanes.h"

namespace tern::client_lib {

// The copies of memory that lies outside the arena: before an op is submitted and after its end, or
// while lanes work on it. Large ones are made without the client's mutex.
class OpCopies {
 public:
  // Everything given outlives this. `mutex`: the client's. `features`: of the daemon.
  OpCopies(std::mutex& mutex, ArenaMemory& arena, SubmissionLanes& lanes, std::uint32_t features)
      : mutex_(mutex), arena_(arena), lanes_(lanes), features_(features) {}

  // ---- REQUIRES, for these: the mutex is held. ----
  // Whether the op's copies go on while lanes work. After the copies of all its submission have
  // their places.
  void place_progress(const OpRequest& request, Op& op);
  // What no watermark tells of is there before the lanes hear of the op.
  void copy_first(Op& first, std::unique_lock<std::mutex>& lock) noexcept;
  // The ops of a submission whose inputs are to be filled, in its order; null: none.
  static Op* to_fill(Op& first) noexcept;
  // Copies what lanes have delivered so far of one of the ops from this one on. False: nothing new.
  static bool take_deliveries(Op* first, std::unique_lock<std::mutex>& lock);

  // ---- REQUIRES: the mutex is not held. ----
  // As lanes take chunks. Lanes that sleep are woken for each piece.
  void fill(Op* op);
  // What is left of the result. REQUIRES: the op has ended well.
  void copy_rest(Op& op) const noexcept;

 private:
  bool daemon_has(std::uint32_t feature) const noexcept { return (features_ & feature) != 0; }
  void fill_one(Op& op);
  // The i-th part of the input in the order in which it is copied, in elements.
  plan::Range part_of(const Op& op, std::uint32_t i) const noexcept;

  std::mutex& mutex_;
  ArenaMemory& arena_;
  SubmissionLanes& lanes_;
  std::uint32_t features_;
};

}  // namespace tern::client_lib
