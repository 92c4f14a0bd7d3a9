#pragma once

// The codec state of tensors on one lane when it cannot go on as it was: after failures, for
// checkpoints, at the end of an epoch.

#include <cstdint>
#include <span>
#include <vector>

#include "collective/group_ops.h"
#include "collective/share_chunks.h"
#include "daemon/lane/lane_exchange.h"
#include "daemon/lane/lane_ops.h"
#include "daemon/tensor/state_part.h"

namespace tern::daemon {

class StateUpkeep {
 public:
  // Everything given outlives this.
  StateUpkeep(const collective::GroupOps& ops, const LaneOps& lane_ops)
      : ops_(ops), lane_ops_(lane_ops), of_op_(ops.table().slots()) {}

  // What the announcement of an op is about to change can be taken back (CodecState::save).
  void save(collective::OpId op);
  bool has_saved(collective::OpId op) const noexcept { return of_op_[op].is_saved; }
  // A failed op: what it has moved at one end of a stream only, and what it has parked, is lost.
  // Returns how many parts of the state are zero again, those that clear_some() clears included; of
  // an op that has been lost before none.
  std::uint64_t lose(collective::OpId op);
  // It has ended, and its slot is another's.
  void forget(collective::OpId op) noexcept { of_op_[op] = {}; }
  // Whether a sum that a lost op had parked still lies where a residual belongs: of any op, or of
  // this one, which must not be released before.
  bool is_clearing() const noexcept { return to_clear_ != 0; }
  bool is_clearing(collective::OpId op) const noexcept { return of_op_[op].has_parked; }
  // Goes on until it has cleared so many bytes, and to the end of a chunk. Returns the op of which
  // nothing is left, kNoSlot if there is none yet. REQUIRES: is_clearing().
  collective::OpId clear_some(std::size_t bytes);
  // How much of what the residual was about has been delivered, nobody knows.
  void mark_doubtful(collective::OpId op);
  // Of all ops in flight, when the epoch ends.
  void mark_all_doubtful();
  // Another node has lost blocks of the tensor's streams: what this one sends begins anew. Readers
  // follow when they see step 0. Nothing is done where none has been sent since the last time.
  void restart_streams(TensorState& tensor);
  // Whether it has lost blocks of the tensor's streams since the last announcement, which is to say
  // so.
  bool take_lost(TensorState& tensor) noexcept;
  // An op that may lose values has been submitted with these counts of the ranks' shares: parts of
  // its state are cut by them.
  void remember_counts(TensorState& tensor, std::span<const std::uint64_t> counts,
                       std::uint32_t counts_crc);
  // How far this lane is with a move.
  struct MoveProgress {
    std::uint64_t next_chunk = 0;  // of the tensor
    std::uint64_t uses = 0;        // of the tensor when the move began
  };
  // Exports or imports the records of this lane's next chunk. True: more is left. Ops on the tensor
  // end the move.
  bool move_some(const StateMove& move, MoveProgress& progress, event::StateMoved& outcome);

 private:
  // Calls use(chunk) for this lane's chunks.
  template <typename Use>
  void for_each_chunk(const TensorState& tensor, Use use) const;
  // `plan`: of the operation whose chunks are meant; null: a striped one without shares.
  // `share_begins`: of a plan with shares; empty: they are equal.
  shm::Sharding sharding_of(const TensorState& tensor, const plan::Plan* plan = nullptr,
                            std::span<const std::uint64_t> share_begins = {}) const;
  // Of the part that is moved. Empty: shares are equal, there are none, or this lane has no chunk.
  std::span<const std::uint64_t> share_begins_of(const StateMove& move) const;
  bool is_in_use(const TensorState& tensor) const;
  bool move_chunk(const StateMove& move, const shm::Sharding& sharding, std::uint32_t chunk) const;
  bool move_elements(const StateMove& move, const shm::Sharding& sharding,
                     std::uint32_t chunk) const;
  void begin_with_counts(const StateMove& move, std::span<const std::uint64_t> share_begins,
                         const shm::Sharding& sharding) const;
  // Whether this node is to owe what all have owed of the chunk.
  bool takes_over(const StateMove& move, const collective::ShareChunks& shares,
                  std::uint32_t chunk) const;
  void take_back(collective::OpId op);
  std::uint64_t lose_streams(collective::OpId op);
  TensorLane& lane_of(TensorState& tensor) const noexcept {
    return tensor.lanes[ops_.shape().lane];
  }

  // What this has done about an op.
  struct OfOp {
    bool is_saved = false;    // what its announcement changes
    bool is_lost = false;     // it has failed
    bool has_parked = false;  // and what it had parked is to be cleared
  };
  // Of the op whose turn it is, how many of its parked sums have been cleared.
  struct Clearing {
    collective::OpId op = collective::kNoSlot;
    std::size_t done = 0;
  };

  const collective::GroupOps& ops_;
  const LaneOps& lane_ops_;
  std::vector<OfOp> of_op_;
  std::uint32_t to_clear_ = 0;  // ops
  Clearing clearing_;
};

}  // namespace tern::daemon
