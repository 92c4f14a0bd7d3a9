#pragma once

// A group on one lane, as its legs share it: the state machine of its ops, what the lane keeps of
// each, its peers, and the frames that go to them.

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "collective/group_ops.h"
#include "daemon/lane/group_setup.h"
#include "daemon/lane/lane_ops.h"
#include "daemon/lane/lane_peer.h"
#include "daemon/lane/lane_resources.h"
#include "wire/frame.h"

namespace tern::daemon {

// Opens the links of groups.
class PeerSource {
 public:
  // The link of the group `group` to that node, opened if it is not.
  virtual LanePeer& peer(const wire::NodeId& id, std::uint64_t group,
                         const net::Endpoint& endpoint) = 0;

 protected:
  ~PeerSource() = default;
};

// A frame that carries elements or a block.
struct BlockFrame {
  wire::FrameHeader header;
  std::span<const std::byte> prefix;  // a block's header, where that does not lie before the body
  std::span<const std::byte> body;
  Cookie cookie = 0;
};

class GroupCore {
 public:
  // `owner` of the memory of the group's ops; outlives this.
  GroupCore(GroupSetup setup, MemoryOwner& owner);

  // ---- Between these two it has links and may be used ----
  void attach(LaneResources& resources, PeerSource& peers, LaneJob& job);
  void detach();

  const GroupSetup& setup() const noexcept { return setup_; }
  std::uint32_t self() const noexcept { return setup_.shape.node; }
  std::uint32_t nodes() const noexcept { return ops_.nodes(); }
  collective::GroupOps& ops() noexcept { return ops_; }
  const collective::GroupOps& ops() const noexcept { return ops_; }
  const collective::Op& op(collective::OpId op) const noexcept { return ops_.op(op); }
  const LaneOps& lane_ops() const noexcept { return lane_ops_; }
  const LaneOp& lane_op(collective::OpId op) const noexcept { return lane_ops_[op]; }
  LaneResources& resources() noexcept { return *resources_; }
  LaneJob& job() const noexcept { return *job_; }
  std::uint64_t now_ns() const noexcept { return resources_->clock.now_ns(); }
  std::size_t bytes(collective::OpId op, std::uint64_t elements) const noexcept {
    return elements * dtype_bytes(static_cast<DType>(ops_.op(op).announced_first.dtype));
  }

  // ---- Tensors that ranks of this node have declared ----
  void add_tensor(TensorState* tensor) { tensors_[tensor->id] = tensor; }
  void drop_tensor(std::uint64_t id) {
    tensors_.erase(id);
    ops_.drop_tensor(id);
  }
  TensorState* tensor(std::uint64_t id) const noexcept {
    const auto found = tensors_.find(id);
    return found != tensors_.end() ? found->second : nullptr;
  }

  // ---- What the lane keeps of an op ----
  // The first rank has submitted it.
  void begin(collective::OpId op, const LaneOp& begun) { lane_ops_.begin(op, begun); }
  // REQUIRES: it has begun, and the rank has not joined.
  void join(collective::OpId op, std::uint32_t local_rank, const OpRank& rank) {
    lane_ops_.join(op, local_rank, rank);
  }
  // Its first chunk is on its way.
  void start(collective::OpId op) { lane_ops_.start(op, now_ns()); }
  // `sent` bytes in place of `raw` ones have gone to each of so many nodes.
  void count_sent(collective::OpId op, std::uint64_t raw, std::uint64_t sent,
                  std::uint64_t receivers) {
    lane_ops_.count_sent(op, raw, sent, receivers);
  }
  // The rank has been told how it ended.
  void told(collective::OpId op, std::uint32_t local_rank) { lane_ops_.told(op, local_rank); }
  void forget(collective::OpId op) { lane_ops_.clear(op); }

  // ---- Peers ----
  const std::vector<LanePeer*>& peers() const noexcept { return peers_; }  // null for this node
  LanePeer& peer(std::uint32_t node) noexcept { return *peers_[node]; }
  std::uint32_t node_of(const LanePeer& peer) const noexcept;  // kNoSlot if not of this group
  bool all_links_open() const;
  // HelloBody::features: whether the daemons of all nodes have it.
  bool all_have(std::uint64_t feature) const;
  void renew_peer(std::uint32_t node);

  // ---- Frames ----
  wire::FrameHeader header(wire::FrameKind kind, collective::OpId op) const noexcept;
  wire::FrameHeader header(wire::FrameKind kind, const collective::OpKey& key) const noexcept;
  wire::FrameHeader block_header(wire::Leg leg, collective::OpId op,
                                 std::uint32_t number) const noexcept;
  // One node alone that an op has failed.
  void tell_failure(std::uint32_t node, const collective::OpKey& key,
                    const collective::Failure& failure);
  // A copy to each node that can be reached.
  void tell_all(const wire::FrameHeader& header, std::span<const std::byte> payload,
                std::span<const std::byte> values = {});
  // Which ranks of this node have submitted an op that waits for its others.
  void tell_submitted(const collective::Action& action);
  // On a lost link the cookie counts as acknowledged.
  void send(std::uint32_t node, const BlockFrame& frame);
  void send_to_all(const BlockFrame& frame);

  // ---- Frames that borrow or fill the memory of an op's ranks ----
  MemoryOwner& memory_owner() const noexcept { return owner_; }
  void pin(collective::OpId op) noexcept { lane_ops_.pin(op); }
  // True: nothing borrows it any more, and it waits for that to end.
  bool unpin(collective::OpId op) noexcept;

 private:
  void use_peer(std::uint32_t node);

  GroupSetup setup_;
  MemoryOwner& owner_;
  collective::GroupOps ops_;
  LaneOps lane_ops_;
  std::unordered_map<std::uint64_t, TensorState*> tensors_;
  LaneResources* resources_ = nullptr;
  PeerSource* source_ = nullptr;
  LaneJob* job_ = nullptr;
  std::vector<LanePeer*> peers_;  // by node
  // By node, what links said that have been replaced: a new one has not said hello yet.
  std::vector<std::uint64_t> renewed_features_;
};

}  // namespace tern::daemon
