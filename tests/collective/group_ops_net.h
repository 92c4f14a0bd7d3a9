#pragma once

// N GroupOps that talk to each other through queues, one per ordered pair of nodes, as links would
// carry their frames: in order within a pair, in any order between pairs. No data moves; what is
// checked is that each action comes when it may, once, that sums are added in the fixed order, that
// nothing is released under who works on it, and that nothing is left.

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "collective/group_ops.h"
#include "wire/frame.h"

namespace tern::collective {

wire::AnnounceBody all_reduce_of(std::uint64_t count, DType dtype = DType::f32,
                                 Reduction reduction = Reduction::sum);
wire::AnnounceBody broadcast_of(std::uint64_t count, std::uint32_t root);
wire::AnnounceBody reduce_of(std::uint64_t count, std::uint32_t root);
wire::AnnounceBody barrier();

// The next action, which is done at once.
Action do_next(GroupOps& ops, const Room& room);

// The chunks of all tests: 16 elements of f32.
constexpr std::uint64_t kChunkBytes = 64;
constexpr std::uint64_t kChunk = kChunkBytes / sizeof(float);

struct NetShape {
  std::vector<std::uint32_t> ranks_of_node;  // how many
  std::uint64_t chunk_bytes = kChunkBytes;
  std::uint64_t eager_bytes = 0;
  EagerForm eager_form = EagerForm::elements;
  RootedForm rooted_form = RootedForm::direct;
  std::uint32_t max_ops = 8;
  std::uint32_t active_chunks = 4;
  std::uint64_t declining = 0;  // nodes, as bits, that want no op to be eager that may lose
  std::uint32_t window = 0;     // see GroupShape::contribution_window
  bool verify = false;
  bool park = false;  // as with one scale for all sums of a node
  bool late = false;  // actions and deliveries are done some time after they begin, in any order
  Room room{4, 64, 4, 4};
};

// What a rank hears of an op.
struct Outcome {
  Errc code = Errc::ok;
  std::string text;
  std::uint32_t about = kNoRank;
};

class GroupOpsNet {
 public:
  GroupOpsNet(NetShape shape, std::uint64_t seed);

  std::uint32_t nodes() const { return static_cast<std::uint32_t>(nodes_.size()); }
  std::uint32_t ranks() const { return ranks_; }
  GroupOps& ops(std::uint32_t node) { return *nodes_[node].ops; }
  std::uint32_t node_of(std::uint32_t rank) const { return node_of_rank_[rank]; }

  // False: refused as too many.
  bool submit(std::uint32_t rank, OpKey key, wire::AnnounceBody body, std::int32_t priority = 0);
  // One action of a node or one frame of a pair, at random. False: nothing can move.
  bool step();
  void run() {
    while (step()) {
    }
  }
  bool done(std::uint32_t rank, const OpKey& key) const;
  Outcome outcome(std::uint32_t rank, const OpKey& key) const;
  void expect_all(const OpKey& key, Errc code);
  // Nothing is in use on any node.
  void expect_clean();
  void cut(std::uint32_t node);  // the node ends: it says nothing and hears nothing any more

  std::uint64_t now_ns = 1;
  // Frames in flight that hold a contribution or a result; the room they take comes back on
  // arrival.
  std::uint64_t frames_moved = 0;
  std::uint64_t contributions = 0;
  std::vector<std::uint64_t> results_from, results_to;  // by node
  bool hold_frames = false;                             // only actions move

 private:
  struct Frame {
    wire::FrameKind kind{};
    OpKey key;
    wire::AnnounceBody body{};
    std::uint32_t chunk = 0, count = 0;
    std::uint64_t ranks = 0;
    Errc code = Errc::ok;
    std::uint32_t about = 0;
    bool is_last = false;  // of the frames of one result
    std::string text;
  };
  struct Delivery {  // of a result
    std::uint32_t from = 0;
    OpId op = kNoSlot;
    std::uint32_t chunk = 0;
  };
  struct Node {
    std::unique_ptr<GroupOps> ops;
    Room used;
    std::map<ChunkId, std::vector<std::uint32_t>> sums;  // nodes in the accumulator, in order
    std::map<ChunkId, std::uint32_t> slabs;              // receive slabs that a chunk still holds
    std::map<ChunkId, OpId> chunk_op;
    std::vector<Action> under_way;     // issued, not done
    std::vector<Delivery> deliveries;  // begun
    bool dead = false;
  };
  using RankOp = std::pair<std::uint32_t, std::pair<std::uint64_t, std::uint64_t>>;

  Room room(const Node& node) const;
  bool take_action(std::uint32_t node);
  bool do_one_late(std::uint32_t node);
  void issue(std::uint32_t node, const Action& action);
  void expect_may_be_issued(const Node& node, const Action& action);
  void end_delivery(std::uint32_t to, const Delivery& delivery);
  void act(std::uint32_t node, const Action& action);
  void deliver(std::uint32_t from, std::uint32_t to, const Frame& frame);
  void release_chunk(Node& node, ChunkId chunk);
  void send_all(std::uint32_t from, const Frame& frame);
  void send_result(std::uint32_t from, const Op& op, std::uint32_t chunk);
  static RankOp id_of(std::uint32_t rank, const OpKey& key) {
    return {rank, {key.tensor, key.sequence}};
  }

  NetShape shape_;
  std::mt19937_64 random_;
  std::vector<Node> nodes_;
  std::vector<std::uint32_t> node_of_rank_, first_rank_;
  std::uint32_t ranks_ = 0;
  std::vector<std::deque<Frame>> pairs_;  // from * nodes + to
  std::map<RankOp, bool> submitted_;
  std::map<RankOp, Outcome> outcomes_;
};

}  // namespace tern::collective
