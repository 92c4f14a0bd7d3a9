#pragma once

// The ops of one group on one lane, as a pure state machine: events in (submissions, frames,
// failures), actions out (next()). It moves no data, knows no clock, does no I/O, and allocates
// only when a group or a tensor is new. The lane carries out the actions and reports back.
//
// Life of an op (docs/architecture.md): every local rank submits -> announce to all nodes -> when
// all nodes have announced, either all values came with the announcements and every node makes the
// result by itself, or each owner grants its chunks as its room allows, gets the contributions,
// adds them in a fixed order, and sends the result -> verify, if asked -> complete. Which of these
// an op has, its plan says.
//
// An action is issued by next() and then done, in any order. While it is issued it does not come
// out again, and of one chunk only one of begin, begin_add, add and finish is in flight. An op may
// fail meanwhile: done() then takes the action back and nothing else. `complete` is issued when
// nothing of the op is in flight, so nothing is released under who carries it out.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "collective/action.h"
#include "collective/departures.h"
#include "collective/group_shape.h"
#include "collective/input_gate.h"
#include "collective/legs.h"
#include "collective/op.h"
#include "collective/op_table.h"
#include "collective/schedule.h"
#include "collective/share_tables.h"

namespace tern::collective {

// A local rank's entry.
struct Submission {
  std::uint32_t local_rank = 0;  // its index on this node
  OpKey key;
  wire::AnnounceBody body{};
  std::int32_t priority = 0;
  std::uint64_t now_ns = 0;
  std::span<const std::uint64_t> counts{};  // the ranks' shares; empty: equal, or none
};

class GroupOps {
 public:
  explicit GroupOps(GroupShape shape);

  // ---- Events. A `false` from an on_ function means that the peer broke the protocol. ----

  // released: the tensor has been dropped, and the op is not one that other ranks wait in.
  enum class SubmitResult : std::uint8_t { accepted, too_many, duplicate, released };
  // A local rank submits. If the op has failed already it is completed for this rank too.
  // REQUIRES: the body's kind has a plan.
  SubmitResult on_submit(const Submission& submission, OpId& op);
  // After on_submit: what this node sends is to be compressed. Unless it may be a block in the
  // announcement, the op takes its legs however small it is; a node says so to the others by
  // announcing it without values. `scans`: with one scale for all that this node sends, for which
  // each chunk is looked through first.
  void compress(OpId op, bool scans = false);
  // kNoSlot in `op`: a late announcement of an op that has ended here.
  bool on_announce(std::uint32_t node, const OpKey& key, const wire::AnnounceBody& body, OpId& op);
  bool on_grant(std::uint32_t node, const OpKey& key, std::uint32_t chunk, std::uint32_t count);
  // A contribution's header: where it belongs. `chunk` kNoSlot: of an op that has ended; throw it
  // away.
  bool expect_contribution(std::uint32_t node, const OpKey& key, std::uint32_t chunk_number,
                           ChunkId& chunk) const;
  void on_contribution(std::uint32_t node, ChunkId chunk);
  // A result's header. kNoSlot: throw it away.
  bool expect_result(std::uint32_t node, const OpKey& key, std::uint32_t chunk_number, OpId& op);
  // The result's frame has come whole, and the lane delivers it until one of the two that follow.
  void delivering(std::uint32_t node, OpId op);
  // It lies in the outputs.
  void delivered(OpId op, std::uint32_t chunk_number);
  void not_delivered(OpId op);  // a bad block, or the op has failed meanwhile
  void on_op_fail(const OpKey& key, const Failure& failure);
  bool on_verify(std::uint32_t node, const OpKey& key, OpId& op);
  // `ranks` of the node, by their index there, have submitted an op that waits for its others.
  bool on_submitted(std::uint32_t node, const OpKey& key, std::uint64_t ranks);

  // ---- Failures that begin here ----

  void fail(OpId op, const Failure& failure);
  // Also of an op that is not known yet. The other nodes are told.
  void fail_key(const OpKey& key, const Failure& failure);
  // A rank of this node has left: what it has not submitted fails, now and later.
  void on_rank_left(std::uint32_t local_rank);
  // All ranks of this node that have declared it have released it: what one of them has not
  // submitted fails, now and later, also for a rank that declares it only then.
  void drop_tensor(std::uint64_t tensor);
  // Everything fails, nothing is sent any more.
  void end(Errc code, std::string_view text);
  // Ops older than timeout_ns that not all ranks have submitted fail, naming who is missing. One that
  // waits for an earlier use of its tensor, which runs here, does not, and has half of its time left
  // when that has ended.
  void expire(std::uint64_t now_ns, std::uint64_t timeout_ns);
  // Of ops that have waited for ranks of this node for so long, the other nodes are told which have
  // come.
  void tell_late(std::uint64_t now_ns, std::uint64_t after_ns);

  // ---- Actions ----

  Action next(const Room& room, const InputGate& inputs = WholeInputs());
  // The lane has carried out an action, of any kind but complete.
  void done(const Action& action);
  // Instead of done() of a finish: the sum is kept elsewhere, because it cannot be encoded before
  // all sums of this node are there (one scale for all of them). finish_parked comes for it then.
  void parked(const Action& finish);
  void release(OpId op);  // ends a complete

  // ---- Look ----

  // The chunks of a failed op that were parked and will not be finished.
  std::span<const std::uint32_t> parked_indices(OpId op) const noexcept { return legs_.parked(op); }
  const GroupShape& shape() const noexcept { return shape_; }
  const OpTable& table() const noexcept { return ops_; }
  std::uint32_t nodes() const noexcept { return shape_.nodes(); }
  const Op& op(OpId id) const noexcept { return ops_[id]; }
  OpId find(const OpKey& key) const noexcept { return ops_.find(key); }
  OpId op_of(ChunkId chunk) const noexcept { return legs_.op_of(chunk); }
  std::uint32_t chunk_number(ChunkId chunk) const noexcept {
    return legs_.chunk_number(ops_[legs_.op_of(chunk)], chunk);
  }
  ChunkId chunk_slot(OpId op, std::uint32_t index) const noexcept { return legs_.slot(op, index); }
  // Those of this node's ranks.
  struct Counts {
    std::uint32_t in_flight = 0;
    std::uint64_t completed = 0;  // of those that count
  };
  const Counts& counts() const noexcept { return counts_; }
  bool ended() const noexcept { return departures_.ended(); }
  const Departures& departures() const noexcept { return departures_; }
  // Ranks that have not submitted op: exact for this node, of another as it has told last. Returns
  // how many; writes at most out.size().
  std::size_t missing_ranks(OpId op, std::span<std::uint32_t> out) const noexcept;

 private:
  bool agrees(OpId id, const wire::AnnounceBody& body);
  bool takes_counts(OpId id, const Submission& submission);
  void start(OpId id);
  void end_if_delivered(OpId id);
  void fail_here(OpId id, const Failure& failure);
  // Of an op that has failed, perhaps long ago.
  void complete_failed(OpId id);
  void forget_failed(std::uint64_t tensor, std::uint64_t below);

  GroupShape shape_;
  OpTable ops_;
  Legs legs_;
  ShareTables shares_;
  PairTables pairs_;
  Schedule schedule_;
  Departures departures_;
  Counts counts_;
};

}  // namespace tern::collective
