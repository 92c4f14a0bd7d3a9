#pragma once

// The ops of one group on one lane, as a pure state machine: events in (submissions, frames,
// failures), actions out (next()). It moves no data, knows no clock, does no I/O, and allocates
// only when a group or a tensor is new. The lane carries out the actions and reports back.
//
// Life of an op (docs/architecture.md): every local rank submits -> announce to all nodes -> when
// all nodes have announced, either all contributions were eager and every node reduces by itself,
// or each owner grants its chunks as its room allows, gets the contributions, adds them in a fixed
// order, and sends the result -> verify, if asked -> complete.

#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/errc.h"
#include "collective/chunk_map.h"
#include "shm/layout.h"
#include "wire/op_frames.h"

namespace tern::collective {

inline constexpr std::uint32_t kMaxNodes = 64;  // node sets are 64-bit masks
inline constexpr std::uint32_t kMaxLocalRanks = 64;
inline constexpr std::uint32_t kNobody = 0xffffffff;

using OpId = std::uint32_t;     // slot of an op
using ChunkId = std::uint32_t;  // slot of a chunk that this node owns and has granted
inline constexpr OpId kNoOp = 0xffffffff;

struct OpKey {
  std::uint64_t tensor = 0;  // 0: anonymous
  std::uint64_t sequence = 0;
  bool operator==(const OpKey&) const = default;
};

struct GroupShape {
  std::uint32_t node = 0;  // this node
  std::uint32_t lane = 0;
  std::uint32_t lanes = 1;
  std::uint64_t chunk_bytes = 256 << 10;
  std::uint64_t eager_bytes = 64 << 10;  // see eager_limit
  std::uint32_t max_ops_in_flight = 128;
  std::uint32_t active_chunks = 64;       // most chunks of this group that may be granted at once
  std::uint32_t contribution_window = 0;  // 0: as many as the function of this name says
  bool verify = false;
  std::vector<std::vector<std::uint32_t>> ranks;  // of each node, ascending
};

// The largest op that travels eagerly among so many nodes, where `agreed` is what all of them
// allow. A node sends an eager op to every other, so the limit is on what it sends in all; a few
// packets to each are always worth the round trip that they save.
constexpr std::uint64_t eager_limit(std::uint64_t agreed, std::uint32_t nodes) noexcept {
  constexpr std::uint64_t kFewPackets = 8 << 10;
  const std::uint64_t each = nodes > 2 ? agreed / (nodes - 1) : agreed;
  return each > kFewPackets ? each : agreed < kFewPackets ? agreed : kFewPackets;
}

// How many raw contributions to one owner a node may be ahead of the owner's results. Between two
// nodes there is no one to be fair to. More of them together send 2 MiB ahead, which keeps a
// datacentre's link busy, and two chunks to each owner at least: one under way, one being added.
constexpr std::uint32_t contribution_window(std::uint64_t chunk_bytes,
                                            std::uint32_t nodes) noexcept {
  if (nodes <= 2) return 0xffffffff;
  const std::uint64_t window = (std::uint64_t{2} << 20) / (chunk_bytes * (nodes - 1));
  return window > 2 ? static_cast<std::uint32_t>(window) : 2;
}

// What the lane has free. An action that needs more than there is does not come out of next().
struct Room {
  std::uint32_t accumulators = 0;   // for chunks this node owns
  std::uint32_t receive_slabs = 0;  // for contributions of other nodes
  std::uint32_t contributions = 0;  // that may still be sent before one is acknowledged
  std::uint32_t results = 0;        // likewise, results
};

enum class ActionKind : std::uint8_t {
  none,
  announce,    // send the op's announcement to every other node
  grant,       // chunks [index, index + count) of this node: reserve room, tell every other node
  contribute,  // encode chunk `index` of `node`, send it there
  begin,       // accumulator of `chunk` = this node's own contribution; there is no other node
  begin_add,   // accumulator of `chunk` = this node's own contribution + that of `node`, as in add
  add,         // accumulator of `chunk` += contribution of `node`; its slab is free
  finish,      // the sum of `chunk` is complete: encode, send to all, deliver
  finish_parked,   // likewise chunk `index`, whose sum was parked until all sums were known
  publish,         // broadcast: send chunk `index` of this node's input to all, deliver
  reduce_eager,    // add all eager contributions in node order, deliver
  verify,          // compute the results' checksums, send them to all
  fail_remote,     // send the op's failure to every other node
  tell_submitted,  // send every other node which ranks of this one have submitted the op
  complete,        // tell every local rank that submitted; then release() when nothing is in use
};

struct Action {
  ActionKind kind = ActionKind::none;
  OpId op = kNoOp;
  std::uint32_t node = 0;
  std::uint32_t index = 0;  // position among the owner's chunks
  std::uint32_t count = 0;
  ChunkId chunk = 0;
};

struct Op {
  OpKey key;
  wire::AnnounceBody said;  // the first announcement; later ones must match it. `rank` sent it
  bool described = false;
  bool started = false;  // all nodes have announced
  bool failed = false;
  bool completing = false;  // complete has been issued
  bool eager = false;       // until a node says that it wants the two legs
  bool compressed = false;  // by this node: its contributions are small
  bool verifying = false;
  std::int32_t priority = 0;
  std::uint64_t order = 0;
  std::uint64_t submitted = 0;  // local ranks, by their index on this node
  std::uint64_t told = 0;       // of these, those that the other nodes know of
  std::uint64_t announced = 0;  // nodes
  std::uint64_t verified = 0;   // nodes whose checksums are here
  std::uint64_t first_submit_ns = 0;
  ChunkMap chunks;
  std::uint32_t root_node = 0;
  std::uint32_t granted_out = 0;  // of this node's chunks
  std::uint32_t finished = 0;
  std::uint32_t published = 0;
  std::uint32_t parked = 0;       // sums that wait for the others, see GroupOps::parked
  std::uint32_t chunks_left = 0;  // results that have not been delivered here
  Errc status = Errc::ok;
  std::uint32_t about_rank = kNobody;
  char text[184] = {};
};

class GroupOps {
 public:
  explicit GroupOps(GroupShape shape);

  // ---- Events. A `false` from an on_ function means that the peer broke the protocol. ----

  enum class SubmitResult : std::uint8_t { accepted, too_many, duplicate };
  // A local rank submits. If the op has failed already it is completed for this rank too.
  SubmitResult on_submit(std::uint32_t local_rank, const OpKey& key, const wire::AnnounceBody& body,
                         std::int32_t priority, std::uint64_t now_ns, OpId& op);
  // After on_submit: this node's contribution is to be compressed, so that the op takes the two
  // legs however small it is. A node says so to the others by announcing it without values.
  void compress(OpId op);
  // kNoOp in `op`: a late announcement of an op that has ended here.
  bool on_announce(std::uint32_t node, const OpKey& key, const wire::AnnounceBody& body, OpId& op);
  bool on_grant(std::uint32_t node, const OpKey& key, std::uint32_t chunk, std::uint32_t count);
  // A contribution's header: where it belongs. `chunk` kNoOp: of an op that has ended; throw it
  // away.
  bool expect_contribution(std::uint32_t node, const OpKey& key, std::uint32_t chunk_number,
                           ChunkId& chunk) const;
  void on_contribution(std::uint32_t node, ChunkId chunk);
  // A result's header. kNoOp: throw it away.
  bool expect_result(std::uint32_t node, const OpKey& key, std::uint32_t chunk_number,
                     OpId& op) const;
  void on_result(std::uint32_t node, OpId op);  // it has been delivered
  void on_op_fail(std::uint32_t node, const OpKey& key, Errc code, std::uint32_t about_rank,
                  std::string_view text);
  bool on_verify(std::uint32_t node, const OpKey& key, OpId& op);
  // `ranks` of the node, by their index there, have submitted an op that waits for its others.
  bool on_submitted(std::uint32_t node, const OpKey& key, std::uint64_t ranks);

  // ---- Failures that begin here ----

  void fail(OpId op, Errc code, std::uint32_t about_rank, std::string_view text);
  void fail_key(const OpKey& key, Errc code, std::uint32_t about_rank, std::string_view text,
                bool tell_others);
  // A rank of this node has left: what it has not submitted fails, now and later.
  void on_rank_left(std::uint32_t local_rank);
  // Everything fails, nothing is sent any more.
  void end(Errc code, std::string_view text);
  // Ops older than timeout_ns that not all ranks have submitted fail, naming who is missing.
  void expire(std::uint64_t now_ns, std::uint64_t timeout_ns);
  // Of ops that have waited for ranks of this node for so long, the other nodes are told which have
  // come.
  void tell_late(std::uint64_t now_ns, std::uint64_t after_ns);

  // ---- Actions ----

  Action next(const Room& room);
  // The lane has carried out an action; kinds not named here need no answer.
  void begun(ChunkId chunk);  // of begin_add too, before added()
  void added(ChunkId chunk, std::uint32_t node);
  void finished(ChunkId chunk);
  // Instead of finished(): the sum is kept elsewhere, because it cannot be encoded before all sums
  // of this node are there (one scale for all of them). finish_parked comes for it then.
  void parked(ChunkId chunk);
  void finished_parked(OpId op);
  void published(OpId op);
  void eager_reduced(OpId op);
  void verified_here(OpId op);
  void release(OpId op);

  // ---- Look ----

  // The chunks of a failed op that were parked and will not be finished.
  std::span<const std::uint32_t> parked_indices(OpId op) const noexcept { return parked_[op]; }
  const GroupShape& shape() const noexcept { return shape_; }
  std::uint32_t nodes() const noexcept { return nodes_; }
  const Op& op(OpId id) const noexcept { return ops_[id]; }
  OpId find(const OpKey& key) const noexcept;
  OpId op_of(ChunkId chunk) const noexcept { return chunks_[chunk].op; }
  std::uint32_t chunk_number(ChunkId chunk) const noexcept;
  ChunkId chunk_slot(OpId op, std::uint32_t index) const noexcept;
  // Whether the contribution of node has arrived and has not been added.
  bool waiting_to_be_added(ChunkId chunk, std::uint32_t node) const noexcept;
  std::uint32_t ops_in_flight() const noexcept { return local_ops_; }
  std::uint32_t live_ops() const noexcept { return live_; }
  std::uint64_t ops_completed() const noexcept { return completed_; }
  bool ended() const noexcept { return ended_; }
  Errc end_code() const noexcept { return end_code_; }
  std::string_view end_text() const noexcept { return end_text_; }
  std::uint32_t node_of_rank(std::uint32_t rank) const noexcept;
  // Ranks that have not submitted op: exact for this node, of another as it has told last. Returns
  // how many; writes at most out.size().
  std::size_t missing_ranks(OpId op, std::span<std::uint32_t> out) const noexcept;
  std::uint32_t slots() const noexcept { return static_cast<std::uint32_t>(ops_.size()); }
  bool in_use(OpId id) const noexcept { return used_[id]; }

 private:
  struct Progress {                 // of an op, with one other node
    std::uint32_t granted = 0;      // chunks of that node it has granted us
    std::uint32_t sent = 0;         // contributions sent to it
    std::uint32_t contributed = 0;  // contributions it has sent us
    std::uint32_t results = 0;      // results it has sent us
    std::uint64_t submitted = 0;    // ranks of that node, as it has told
  };
  struct Chunk {
    OpId op = kNoOp;
    std::uint32_t index = 0;
    std::uint64_t arrived = 0;   // nodes whose contribution is here and not yet added
    std::uint32_t position = 0;  // contributions in the accumulator, our own first
  };
  struct Uses {
    std::uint64_t submitted_below = 0;  // uses below this have been submitted by all local ranks
  };

  std::uint64_t all_nodes() const noexcept;
  std::uint64_t all_local() const noexcept;
  OpId create(const OpKey& key);
  void describe(Op& op, const wire::AnnounceBody& body);
  void decline_eager(OpId id);
  bool eager_bytes_agree(OpId id, std::uint32_t node, const wire::AnnounceBody& body);
  bool agrees(OpId id, const wire::AnnounceBody& body);
  void locally_ready(OpId id);
  void start(OpId id);
  void check_delivered(OpId id);
  void finish_op(OpId id);
  void fail_here(OpId id, Errc code, std::uint32_t about_rank, std::string_view text);
  void complete_again(OpId id);
  bool still_expected(const Op& op) const noexcept;
  bool superseded(const OpKey& key) const noexcept;
  Action running_action(OpId id, const Room& room);
  void free_chunks(OpId id);
  Progress& progress(OpId op, std::uint32_t node) noexcept { return progress_[op * nodes_ + node]; }
  const Progress& progress(OpId op, std::uint32_t node) const noexcept {
    return progress_[op * nodes_ + node];
  }

  GroupShape shape_;
  std::uint32_t nodes_;
  std::uint32_t window_;  // see contribution_window
  std::uint32_t local_ranks_;
  std::uint64_t left_local_ = 0;  // local ranks that have left
  bool ended_ = false;
  Errc end_code_ = Errc::ok;
  char end_text_[184] = {};

  std::vector<Op> ops_;
  std::vector<bool> used_;
  std::vector<OpId> free_ops_;
  std::vector<Progress> progress_;                  // slots x nodes
  std::vector<std::vector<std::uint32_t>> parked_;  // by op: indices of parked chunks
  std::vector<Chunk> chunks_;
  std::vector<ChunkId> free_chunks_;
  std::vector<OpId> to_announce_;
  std::vector<OpId> to_fail_remote_;
  std::vector<OpId> to_complete_;
  std::vector<OpId> to_tell_;
  std::vector<OpId> running_;  // started, not eager; by priority, then order
  std::unordered_map<std::uint64_t, std::vector<OpId>> by_tensor_;  // live ops of each tensor
  std::unordered_map<std::uint64_t, Uses> uses_;
  std::uint64_t next_order_ = 0;
  std::uint32_t local_ops_ = 0;
  std::uint32_t live_ = 0;
  std::uint64_t completed_ = 0;
};

}  // namespace tern::collective
