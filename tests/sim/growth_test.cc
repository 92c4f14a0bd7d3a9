// What an operation costs a node as the group grows: how many frames of its lanes it sends, and how
// many bytes. Nothing that a node does for one operation may grow with the square of the nodes.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "every_kind.h"
#include "plan/plans.h"
#include "point_to_point.h"
#include "wire/frame.h"

namespace tern::sim {
namespace {

using shm::OpKind;

struct Cost {
  std::uint64_t frames = 0, bytes = 0;  // of the node that sends most
};

class Growing {
 public:
  explicit Growing(std::uint32_t nodes)
      : nodes_(nodes), cluster_(std::vector<std::uint32_t>(nodes, 1), shape_for(nodes)) {
    cluster_.join();
    cluster_.world.skips = false;
    cluster_.world.tap = [this](const net::OutgoingFrame& frame) {
      const wire::FrameHeader header = wire::parse_frame_header(frame.head).header;
      if (static_cast<wire::FrameKind>(header.kind) < wire::FrameKind::announce) return;
      Cost& cost = by_node_[header.source_node];
      ++cost.frames;
      cost.bytes += frame.head.size() + frame.body.size();
    };
  }

  Cost of(const KindCase& c) {
    return of_work([&] { expect_kind(cluster_, c, 1); });
  }
  // To the next rank, and from the one before.
  Cost of_passing(std::uint64_t count) {
    return of_work([&] {
      std::vector<Passed> all;
      for (std::uint32_t rank = 0; rank < nodes_; ++rank) {
        all.push_back(send(cluster_, rank, {(rank + 1) % nodes_, 1, count}));
        all.push_back(recv(cluster_, rank, {(rank + nodes_ - 1) % nodes_, 1, count}));
      }
      for (const Passed& one : all) await(cluster_, one);
      cluster_.forget_arenas();
    });
  }
  Cost of_barrier() {
    OpRequest barrier;
    barrier.kind = OpKind::barrier;
    return of_work([&] {
      cluster_.finish(cluster_.submit(barrier, std::vector<Bytes>(nodes_)));
      cluster_.forget_arenas();
    });
  }

 private:
  static DaemonShape shape_for(std::uint32_t nodes) {
    DaemonShape shape;
    shape.receive_slabs = 2 * nodes;
    return shape;
  }
  template <typename Work>
  Cost of_work(Work work) {
    by_node_.clear();
    work();
    Cost most;
    for (const auto& [node, cost] : by_node_) {
      most.frames = std::max(most.frames, cost.frames);
      most.bytes = std::max(most.bytes, cost.bytes);
    }
    return most;
  }

  std::uint32_t nodes_;
  Cluster cluster_;
  std::map<std::uint32_t, Cost> by_node_;
};

const std::vector<std::uint32_t> kNodes{8, 16, 32, 64};
constexpr std::uint64_t kFewFrames = 3;

// For each other node at most what it is in a smaller group, and in all a few frames besides: who
// is one of the others itself sends so many fewer in every group.
void expect_linear(const std::string& what, const std::vector<Cost>& costs) {
  for (std::size_t i = 1; i < costs.size(); ++i) {
    const std::uint64_t others = kNodes[i] - 1, before = kNodes[i - 1] - 1;
    SCOPED_TRACE(testing::Message()
                 << what << ", " << others + 1 << " nodes: " << costs[i].frames << " frames, "
                 << costs[i].bytes << " bytes; " << before + 1 << " nodes: " << costs[i - 1].frames
                 << ", " << costs[i - 1].bytes);
    EXPECT_LE(costs[i].frames * before, costs[i - 1].frames * others + kFewFrames * before);
    EXPECT_LE(costs[i].bytes * before, costs[i - 1].bytes * others);
  }
}

// Operations of the same elements in all, whoever takes part: small ones in one hop, and such that
// are cut into chunks.
TEST(Growth, OfAnOperationIsLinearInTheNodes) {
  std::map<std::string, std::vector<Cost>> costs;
  for (const std::uint32_t nodes : kNodes) {
    Growing group(nodes);
    for (const std::uint64_t all : {64u, 16u * 1024u}) {
      for (const OpKind kind :
           {OpKind::all_reduce, OpKind::broadcast, OpKind::reduce, OpKind::reduce_scatter,
            OpKind::all_gather, OpKind::gather, OpKind::scatter}) {
        KindCase c{.kind = kind, .dtype = DType::i32, .root = 3, .equal = true};
        c.counts.assign(nodes, all / nodes);
        const std::string name(plan::name_of(static_cast<std::uint64_t>(kind)));
        costs[std::to_string(all) + " elements: " + name].push_back(group.of(c));
        c.equal = false;
        c.counts[1] += 1;
        if (all == 64 && kind != OpKind::all_reduce && kind != OpKind::broadcast &&
            kind != OpKind::reduce) {
          costs[std::to_string(all) + " elements with counts: " + name].push_back(group.of(c));
        }
        if (HasFatalFailure()) return;
      }
      // As many for each rank.
      for (const bool equal : {true, false}) {
        if (all != 64 && !equal) continue;
        KindCase c{.kind = OpKind::all_to_all, .dtype = DType::i32, .equal = equal};
        c.counts.assign(std::size_t{nodes} * nodes, all / 64);
        costs[std::to_string(all) + (equal ? " elements: " : " elements with counts: ") +
              "all_to_all"]
            .push_back(group.of(c));
      }
      costs[std::to_string(all) + " bytes: send"].push_back(group.of_passing(all));
    }
    costs["barrier"].push_back(group.of_barrier());
    if (HasFailure()) return;
  }
  for (const auto& [what, of_nodes] : costs) {
    std::string line = what;
    for (const Cost& cost : of_nodes) {
      line += "  " + std::to_string(cost.frames) + " (" + std::to_string(cost.bytes) + ")";
    }
    std::printf("%s\n", line.c_str());
    expect_linear(what, of_nodes);
  }
}

// Whoever takes no part in a send hears nothing, so that its cost does not depend on the nodes.
TEST(Growth, OfASendThereIsNone) {
  std::vector<Cost> costs;
  for (const std::uint32_t nodes : {2u, 64u}) costs.push_back(Growing(nodes).of_passing(100'000));
  EXPECT_EQ(costs[0].frames, costs[1].frames);
  EXPECT_EQ(costs[0].bytes, costs[1].bytes);
}

}  // namespace
}  // namespace tern::sim
