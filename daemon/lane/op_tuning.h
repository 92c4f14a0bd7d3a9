#pragma once

// Ops whose recipe the tuner chooses: which candidate each block of an op is sent by, and what is
// told of it.

#include <cstdint>
#include <span>
#include <vector>

#include "collective/op_rows.h"
#include "daemon/lane/group_core.h"
#include "daemon/lane/node_values.h"
#include "tuner/tensor_policy.h"
#include "wire/block.h"
#include "wire/op_frames.h"

namespace tern::daemon {

class OpTuning {
 public:
  // An op waits for the slowest of its nodes, so that they had better send it alike: as this node.
  static constexpr std::uint32_t kLeader = 0;

  // Everything given outlives this. Events name the group by `group`.
  OpTuning(GroupCore& core, const NodeValues& values, LaneGroup& group)
      : core_(core),
        values_(values),
        group_(group),
        choices_(core.ops().slots()),
        candidates_(core.ops().slots(), core.nodes(), core.setup().shape.max_ops_in_flight,
                    tuner::kRaw) {}

  // ---- In the order of an op's life. Of ops that nothing is chosen for they do nothing. ----

  // The first rank has submitted it: one choice for all of the op, unless a new one comes in its
  // middle. What the leading node has said of it stays.
  void begin(collective::OpId op);
  // Whether its blocks are compressed, as far as it is known.
  bool compresses(collective::OpId op) const noexcept;
  // On the leading node: what the announcement says of it; of an op whose contributions travel with
  // their announcements, of the tensor's next one. The same to all nodes, whenever it is sent.
  void announce(collective::OpId op, wire::AnnounceBody& body) noexcept;
  // What the leading node has announced. It may come before this node's own submission, and is
  // judged later.
  void hear_lead(collective::OpId op, const wire::AnnounceBody& body) noexcept;
  // Before its first block: all nodes have announced it, or the leading node's choice came with the
  // tensor's last op.
  void settle(collective::OpId op);

  struct Block {
    std::uint32_t number = 0;  // of the chunk
    wire::Leg leg = wire::Leg::reduce;
    std::uint32_t node = 0;  // the owner that a contribution goes to; this node for a result
  };
  // By which recipe it is sent. Valid until the op ends.
  const codec::Recipe& recipe(collective::OpId op, const Block& block);
  // A result of another node, or its contribution to an eager op: whether it was made as here.
  void compare(collective::OpId op, const wire::BlockHeader& header) noexcept;
  // All nodes have announced an op whose contributions may be blocks there. Of others it does
  // nothing.
  void pass_on_lead(collective::OpId op) noexcept;
  // What the tuner is to know of an op that has ended.
  void describe(collective::OpId op, OpRecord& record) const noexcept;
  void forget(collective::OpId op) noexcept {
    choices_[op] = Choice{};
    candidates_.clear(op);
  }

  // ---- Samples for the shadow, where one is wanted ----
  void offer_contribution(collective::OpId op, std::uint32_t number);
  // A node that owns all chunks of an op contributes nothing.
  void offer_grant(collective::OpId op, std::uint32_t index);
  // What moves.
  void offer_moved(collective::OpId op, const ChunkPart& part);
  void offer_whole(collective::OpId op);

 private:
  using Lead = TensorTuning::Lead;
  enum class Phase : std::uint8_t { open, settled };
  // Whose choice the op is sent by. `none`: the tuner reckons with another kind of operation.
  enum class Source : std::uint8_t { own, lead, replay, none };
  struct Choice {
    Phase phase = Phase::open;
    Source source = Source::own;
    bool overruled = false;  // the leading node's is not what was chosen here
    bool mixed = false;      // another choice came in the op's middle
    bool alike = true;       // no other node sent its results otherwise
    bool said_next = false;  // by the leading node: its choice for the tensor's next op
    TensorTuning::Aside aside;
    std::uint32_t version = 0;
    Lead heard;  // what the leading node has announced with this op
    Lead lead;   // what it has said of this op
  };

  tuner::CandidateIndex candidate(collective::OpId op, std::uint32_t node) const noexcept {
    return candidates_.read(op, node);
  }

  TensorTuning* tuning(collective::OpId op) const noexcept {
    return core_.lane_op(op).encoding.tuning;
  }
  std::uint64_t use(collective::OpId op) const noexcept { return core_.op(op).key.sequence; }
  std::uint32_t lane() const noexcept { return core_.setup().shape.lane; }
  // As the leading node does, if this one may.
  void follow(collective::OpId op);
  void log(collective::OpId op);
  bool owns_all(collective::OpId op) const noexcept;
  // Contributions travel with their announcements, however they are sent.
  bool is_announced(collective::OpId op) const noexcept;
  // Chunks of a round.
  std::uint32_t columns(collective::OpId op) const noexcept;
  struct Sample {
    ChunkPart part;
    std::span<const float> (NodeValues::*values)(collective::OpId, const ChunkPart&) const;
    const float* residual = nullptr;
  };
  void offer(collective::OpId op, const Sample& sample);

  GroupCore& core_;
  const NodeValues& values_;
  LaneGroup& group_;
  std::vector<Choice> choices_;                           // by op slot
  collective::OpRows<tuner::CandidateIndex> candidates_;  // of results at our own node
};

}  // namespace tern::daemon
