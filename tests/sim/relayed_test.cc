// Large exact ops with a root among more than two nodes: which way their bytes go, and who may be
// held to the way of before.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "every_kind.h"
#include "wire/frame.h"

namespace tern::sim {
namespace relayed_test {

using shm::OpKind;

constexpr std::uint64_t kChunkBytes = 16 << 10;

struct Sent {                                    // of a node
  std::uint64_t contributions = 0, results = 0;  // bytes with their headers
};

class Relayed : public testing::Test {
 protected:
  // `direct`: the daemon that holds the older form, "" for none.
  explicit Relayed(std::string direct = "") : direct_(std::move(direct)) {}

  DaemonShape shape() const {
    DaemonShape shape;
    shape.lanes = 2;
    shape.chunk_bytes = kChunkBytes;
    shape.adjust = [direct = direct_](daemon::ConductorSettings& settings) {
      if (settings.advertise.host == direct) settings.ops.rooted_form = 1;
    };
    return shape;
  }

  // What each node sends while all ranks do an op with the root `root`.
  std::map<std::uint32_t, Sent> sent_in(Cluster& cluster, OpKind kind, std::uint32_t root,
                                        std::uint64_t count = kCount) {
    std::map<std::uint32_t, Sent> sent;
    cluster.world.tap = [&sent](const net::OutgoingFrame& frame) {
      const wire::FrameHeader header = wire::parse_frame_header(frame.head).header;
      const auto kind_of_frame = static_cast<wire::FrameKind>(header.kind);
      const std::uint64_t bytes = frame.head.size() + frame.body.size();
      if (kind_of_frame == wire::FrameKind::contribution) {
        sent[header.source_node].contributions += bytes;
      }
      if (kind_of_frame == wire::FrameKind::result) sent[header.source_node].results += bytes;
    };
    KindCase c{.kind = kind, .root = root, .equal = true};
    c.counts.assign(cluster.size(), count / cluster.size());
    expect_kind(cluster, c, 1);
    cluster.world.tap = nullptr;
    return sent;
  }

  static constexpr std::uint64_t kCount = 240'000;
  static constexpr std::uint64_t kBytes = kCount * sizeof(float);
  // With frame and block headers, and chunks that do not come out even.
  static constexpr std::uint64_t kMost = kBytes + kBytes / 8;

  std::string direct_;
};

TEST_F(Relayed, NoNodeSendsMoreOfABroadcastThanTheOpHas) {
  for (const std::uint32_t nodes : {3u, 4u, 8u}) {
    Cluster cluster(std::vector<std::uint32_t>(nodes, 1), shape());
    cluster.join();
    const auto sent = sent_in(cluster, OpKind::broadcast, 1);
    ASSERT_EQ(sent.size(), nodes);
    for (const auto& [node, bytes] : sent) {
      EXPECT_EQ(bytes.contributions, 0u);
      EXPECT_LE(bytes.results, kMost) << nodes << " nodes, node " << node;
    }
  }
}

TEST_F(Relayed, NoNodeSendsMoreOfAReduceThanTheOpHasAndTheRootNoResult) {
  for (const std::uint32_t nodes : {3u, 4u, 8u}) {
    Cluster cluster(std::vector<std::uint32_t>(nodes, 1), shape());
    cluster.join();
    const auto sent = sent_in(cluster, OpKind::reduce, 2);
    std::uint64_t results = 0;
    for (const auto& [node, bytes] : sent) {
      EXPECT_LE(bytes.contributions + bytes.results, kMost) << nodes << " nodes, node " << node;
      if (node == 2) {
        EXPECT_EQ(bytes.results, 0u);
      }
      results += bytes.results;
    }
    EXPECT_LE(results, kMost) << "what the root gets";
  }
}

// The root's node has other ranks too, and so have the nodes that send on.
TEST_F(Relayed, SeveralRanksOfANodeHearOnce) {
  Cluster cluster({2, 3, 1, 2}, shape());
  cluster.join();
  for (std::uint32_t root = 0; root < cluster.size(); ++root) {
    for (const auto& [node, bytes] : sent_in(cluster, OpKind::broadcast, root)) {
      EXPECT_LE(bytes.results, kMost) << "root " << root << ", node " << node;
    }
    sent_in(cluster, OpKind::reduce, root);
  }
}

TEST_F(Relayed, WhatIsSmallIsNot) {
  Cluster cluster({1, 1, 1, 1}, shape());
  cluster.join();
  const auto sent = sent_in(cluster, OpKind::broadcast, 0, kChunkBytes / sizeof(float) - 4);
  EXPECT_EQ(sent.size(), 1u) << "the root alone sends";
}

class WithAnOlderNode : public Relayed {
 protected:
  WithAnOlderNode() : Relayed("node2") {}
};

TEST_F(WithAnOlderNode, TheRootSendsToAllAndAddsEverything) {
  Cluster cluster({1, 1, 1, 1}, shape());
  cluster.join();
  const auto spread = sent_in(cluster, OpKind::broadcast, 0);
  ASSERT_EQ(spread.size(), 1u);
  EXPECT_GE(spread.at(0).results, 3 * kBytes);
  for (const auto& [node, bytes] : sent_in(cluster, OpKind::reduce, 0)) {
    EXPECT_EQ(bytes.results, 0u) << "node " << node;
  }
}

}  // namespace relayed_test
}  // namespace tern::sim
