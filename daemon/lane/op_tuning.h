#pragma once

// Ops whose recipe the tuner chooses: which candidate each block of an op is sent by, and what is
// told of it.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "collective/op_rows.h"
#include "daemon/lane/group_core.h"
#include "daemon/lane/node_values.h"
#include "shm/encoded_by.h"
#include "tuner/error_guard.h"
#include "tuner/tensor_policy.h"
#include "wire/block.h"
#include "wire/op_frames.h"

namespace tern::daemon {

// What the client says of blocks that it has encoded. Foreign, and checked to be plain numbers.
struct ClientEncoding {
  shm::EncodedBy by;
  tuner::LegEnergies energies;
  std::uint64_t ns = 0;
};

class OpTuning {
 public:
  // Everything given outlives this. Events name the group by `group`.
  OpTuning(GroupCore& core, const NodeValues& values, const collective::InputGate& inputs,
           LaneGroup& group)
      : core_(core),
        values_(values),
        inputs_(inputs),
        group_(group),
        choices_(core.ops().table().slots()),
        candidates_(core.ops().table().slots(), core.nodes(), core.setup().shape.max_ops_in_flight,
                    tuner::kRaw) {}

  // ---- In the order of an op's life. Of ops that nothing is chosen for they do nothing. ----

  // The first rank has submitted it: one choice for all of the op, unless a new one comes in its
  // middle. What the leading node has said of it stays. `made`: of an op with slots.
  void begin(collective::OpId op, const ClientEncoding& made = {});
  // Whether its blocks are compressed, as far as it is known.
  bool compresses(collective::OpId op) const noexcept;
  // On the leading node: what the announcement says of it; of an op whose contributions travel with
  // their announcements, of the tensor's next one. The same to all nodes, whenever it is sent.
  void announce(collective::OpId op, wire::AnnounceBody& body) noexcept;
  // What the leading node has announced. It may come before this node's own submission, and is
  // judged later.
  void hear_lead(collective::OpId op, const wire::AnnounceBody& body) noexcept;
  // What another node has announced: perhaps that its client has made its contributions before it
  // could hear the leading node.
  void hear_early(collective::OpId op, const wire::AnnounceBody& body) noexcept;
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
  // All nodes have announced an op that says how the next one is sent. Of others it does nothing.
  void pass_on_lead(collective::OpId op) noexcept;
  // How the client of a tensor with client_blocks is to encode the next op, for its completion; 0:
  // nothing is said.
  std::uint32_t next_by_client(collective::OpId op) noexcept;
  // What the tuner is to know of an op that has ended, as far as it is the choice. None: it has not
  // chosen.
  std::optional<TunedRecord> describe(collective::OpId op) const noexcept;
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
  // What nodes have announced with the op, perhaps before a rank here has submitted it.
  struct Announced {
    enum class About : std::uint8_t { nothing, this_op, next_op };
    Lead lead;                     // of the leading node
    About about = About::nothing;  // what that is about
    bool is_early = false;         // another node's client has encoded before it could hear
  };
  // What the tuner is to know of how the op went.
  struct Findings {
    bool mixed = false;  // another choice came in the op's middle
    bool alike = true;   // no other node sent its results otherwise
    tuner::CandidateIndex unheeded = tuner::kNoCandidate;  // that the client does not encode by
  };
  struct Choice {
    Phase phase = Phase::open;
    Source source = Source::own;
    bool overruled = false;  // it is sent otherwise than was chosen here
    TensorTuning::Aside aside;
    Lead lead;  // what the leading node has said of this op
    std::uint32_t version = 0;
    Announced announced;
    Findings found;
    shm::EncodedBy made;
  };

  tuner::CandidateIndex candidate(collective::OpId op, std::uint32_t node) const noexcept {
    return candidates_.read(op, node);
  }

  TensorTuning* tuning(collective::OpId op) const noexcept {
    return core_.lane_op(op).encoding.tuning;
  }
  std::uint64_t use(collective::OpId op) const noexcept { return core_.op(op).key.sequence; }
  std::uint32_t lane() const noexcept { return core_.setup().shape.lane; }
  TensorLane::Tuned& tuned(collective::OpId op) const noexcept {
    return core_.lane_op(op).tensor->lanes[lane()].tuned;
  }
  // Contributions have been made by the client.
  bool has_client_blocks(collective::OpId op) const noexcept {
    return core_.lane_op(op).slots() != nullptr;
  }
  bool may_follow(const TensorTuning& tuning, const Lead& lead) const noexcept {
    return lead.results != tuner::kNoCandidate && lead.list == tuning.list() &&
           tuning.may_use(lead.results) && tuning.may_use(lead.contributions);
  }
  // As the leading node does, if this one may.
  void follow(collective::OpId op);
  void send_by(collective::OpId op, const Lead& legs);
  // Whether the client encodes as it is told: it need not have an encoder for every recipe.
  void watch_client(collective::OpId op) noexcept;
  void log(collective::OpId op);
  bool owns_all(collective::OpId op) const noexcept;
  // Contributions travel with their announcements, however they are sent.
  bool is_announced(collective::OpId op) const noexcept;
  // Some are made before the op is announced: what the leading node says is of the next one.
  bool is_led_early(collective::OpId op) const noexcept;
  // What the leading node has announced with the op is of the next one.
  bool leads_next(collective::OpId op) const noexcept;
  // By which this node's own are sent, as far as the op waits for them.
  tuner::CandidateIndex contributions(collective::OpId op) const noexcept;
  // Chunks of a round.
  std::uint32_t columns(collective::OpId op) const noexcept;
  struct Sample {
    ChunkPart part;
    std::span<const float> (NodeValues::*values)(collective::OpId, const ChunkPart&) const;
    const float* residual = nullptr;
  };
  bool is_short(collective::OpId op, std::uint32_t number) const noexcept;
  void offer(collective::OpId op, const Sample& sample);
  // An own chunk of a node whose client has blocks.
  void offer_own(collective::OpId op, std::uint32_t index);

  GroupCore& core_;
  const NodeValues& values_;
  const collective::InputGate& inputs_;
  LaneGroup& group_;
  std::vector<Choice> choices_;                           // by op slot
  collective::OpRows<tuner::CandidateIndex> candidates_;  // of results at our own node
};

}  // namespace tern::daemon
